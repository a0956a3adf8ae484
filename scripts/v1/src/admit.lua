-- admit: start permits in any mix of gauges and windows, each in all of them or in none.
-- KEYS  gauges and windows
-- ARGV  now ('': the server's clock); mode ('': take, 'dry': only say, 'rejoin': take even above the limit); for each
--       key its kind ('s' gauge, 'w' window), its limit ('5', '~5': never refuse, only report, '-': no limit) and its
--       lease or length in ms; then for each permit its id and for each window, in the order of KEYS, its cost
-- Reply for each permit: 1 granted, 2 granted before, 0 refused; then for each key four numbers: verdict (0 taken or
--       free, 1 full, 2 never fits, 3 above the limit but not refused, 4 held before), slots or units in use, ms until
--       the first lease ends or the window rolls, leases found ended unreleased and dropped
--@ clock
--@ decide places
--@ slots places
--@ window places
local first, stride = 3 + 3 * keys, 1
for k = 1, keys do
  if ARGV[3 * k] == 'w' then stride = stride + 1 end
end
--@ permits
--@ window fields
local column, length, span = 0
for k = 1, keys do
  local key, text = KEYS[k], ARGV[1 + 3 * k]
  if ARGV[2 + 3 * k] ~= length then -- mostly they are the same, and to read a number is not cheap
    length = ARGV[2 + 3 * k]
    span = length + 0
  end
  --@ decide limit
  if ARGV[3 * k] == 'w' then
    column = column + 1
    --@ window open
  else
    --@ slots open
  end
  --@ decide known
end
--@ decide all

--# cost
if state[COLUMN] then cost = ARGV[costs + state[COLUMN]] + 0 end

--# take
if state[COLUMN] then
  --@ window take
else
  --@ slots take
end

--# write
if state[COLUMN] then
  --@ window write
else
  --@ slots write
end
