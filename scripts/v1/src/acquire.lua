-- acquire: take a slot of each gauge, or of none.
-- KEYS  gauges
-- ARGV  now ('': the server's clock); mode ('': take, 'dry': only say, 'rejoin': take even above the limit); for each
--       key its limit ('5', '~5': never refuse, only report, '-': no limit) and its lease in ms; then the permit ids
-- Reply for each permit: 1 granted, 2 granted before, 0 refused; then for each key four numbers: verdict (0 taken or
--       free, 1 full, 2 never fits, 3 above the limit but not refused, 4 held before), slots in use, ms until the first
--       lease ends, leases found ended unreleased and dropped
--@ clock
--@ decide places
--@ slots places
local first, stride = 3 + 2 * keys, 1
--@ permits
for k = 1, keys do
  local key, text, span = KEYS[k], ARGV[1 + 2 * k], ARGV[2 + 2 * k] + 0
  --@ decide limit
  --@ slots open
  --@ decide known
end
--@ decide all

--# cost

--# take
--@ slots take

--# write
--@ slots write
