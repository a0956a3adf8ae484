-- settle: set the charges of open permits to absolute figures; the permits stay open.
-- KEYS  windows
-- ARGV  now ('': the server's clock); for each key the window's length in ms; then for each permit its id and for
--       each window the units really used, or '-' to let the charge stand
-- Reply for each permit: 2 if every key held it, 1 if some did, 0 if none; then for each key 1 if it held it, else 0
--@ clock
local first, stride = 2 + keys, 1 + keys
--@ permits
--@ window fields
local states = {false}
for k = 1, keys do
  local key, span, column, state = KEYS[k], tonumber(ARGV[1 + k]), k
  --@ window find
  state = {span, used, 0, held, false, 0, column, false, false}
  states[k] = state
end
--@ outcomes
for k = 1, keys do
  local state = states[k]
  if state[GONE] then
    -- HDEL first: the server allows it when out of memory, and then the HSET that follows.
    call('HDEL', KEYS[k], unpack(state[GONE]))
    call('HSET', KEYS[k], 'n', state[USED], unpack(state[NEW]))
  end
end
return reply

--# act
local units = tonumber(ARGV[figures + state[COLUMN]])
if units and units ~= tonumber(held) then
  --@ window charge
  if not state[GONE] then state[GONE], state[NEW] = {}, {} end
  local n = #state[GONE]
  state[GONE][n + 1], state[NEW][2 * n + 1], state[NEW][2 * n + 2] = fields[p], fields[p], units
  if same then state[HELD][who] = units end
end
