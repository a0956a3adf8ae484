-- settle: set the charges of open permits to absolute figures; the permits stay open.
-- KEYS  windows
-- ARGV  now ('': the server's clock); for each key the window's length in ms; then for each permit its id and for
--       each window the units really used, or '-' to let the charge stand
-- Reply for each permit: 2 if every key held it, 1 if some did, 0 if none; then for each key 1 if it held it, else 0
--@ clock
--@ outcomes places
local COLUMN, USED, CHANGED, NEW = 3, 4, 5, 6
local first, stride = 2 + keys, 1 + keys
--@ permits
--@ window fields
for k = 1, keys do
  local key, span, column = KEYS[k], ARGV[1 + k] + 0, k
  --@ window find
  state = {held, false, column, used, false, false}
  if states then states[k] = state end
end
--@ outcomes all
for k = 1, keys do
  if states then state = states[k] end
  if state[GONE] then
    -- HDEL first: the server allows it when out of memory, and then the HSET that follows.
    call('HDEL', KEYS[k], unpack(state[GONE]))
    call('HSET', KEYS[k], 'n', state[USED], unpack(state[NEW]))
  end
end
return reply

--# act
local text = ARGV[figures + state[COLUMN]]
local units = text ~= '-' and text + 0
if units and units ~= tonumber(held) then
  --@ window charge
  if not state[GONE] then state[GONE], state[NEW] = {}, {} end
  local n = #state[GONE]
  state[GONE][n + 1], state[NEW][2 * n + 1], state[NEW][2 * n + 2] = fields[p], fields[p], units
  if same then state[HELD][who] = units end
end
