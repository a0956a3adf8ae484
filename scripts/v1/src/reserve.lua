-- reserve: charge units to each window, or to none.
-- KEYS  windows
-- ARGV  now ('': the server's clock); mode ('': charge, 'dry': only say, 'rejoin': charge even above the limit); for
--       each key its limit ('600', '~600': never refuse, only report, '-': no limit) and its length in ms; then for
--       each permit its id and its cost for each window
-- Reply for each permit: 1 granted, 2 granted before, 0 refused; then for each key four numbers: verdict (0 charged or
--       free, 1 full, 2 never fits, 3 above the limit but not refused, 4 held before), units used, ms until it rolls, 0
--@ clock
--@ decide places
--@ window places
local first, stride = 3 + 2 * keys, 1 + keys
--@ permits
--@ window fields
for k = 1, keys do
  local key, text, span, column = KEYS[k], ARGV[1 + 2 * k], ARGV[2 + 2 * k] + 0, k
  --@ decide limit
  --@ window open
  --@ decide known
end
--@ decide all

--# cost
cost = ARGV[costs + k] + 0

--# take
--@ window take

--# write
--@ window write
