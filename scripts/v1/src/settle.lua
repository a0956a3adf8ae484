-- settle: set the charges of open permits to absolute figures; the permits stay open.
-- KEYS  windows
-- ARGV  now ('': the server's clock); for each key the window's length in ms; then for each permit its id and for
--       each window the units really used, or '-' to let the charge stand
-- Reply for each permit: 2 if every key held it, 1 if some did, 0 if none; then for each key 1 if it held it, else 0
--@ clock
local first, stride = 2 + #KEYS, 1 + #KEYS
--@ permits
--@ window fields
local states = {false}
for k = 1, #KEYS do
  local key, span, column, state = KEYS[k], tonumber(ARGV[1 + k]), k
  --@ window find
  state = {key = key, column = column, used = used, held = held, new = false, gone = false}
  states[k] = state
end
--@ outcomes
for k = 1, #KEYS do
  local state = states[k]
  if state.gone then
    -- HDEL first: the server allows it when out of memory, and then the HSET that follows.
    redis.call('HDEL', state.key, unpack(state.gone))
    redis.call('HSET', state.key, 'n', state.used, unpack(state.new))
  end
end
return reply

--# act
local units = tonumber(ARGV[first + (p - 1) * stride + state.column])
if units and units ~= state.held[id] then
  --@ window charge
  if state.gone then state.gone[#state.gone + 1] = ':' .. id else state.gone = {':' .. id} end
  local cost = units
  state.held[id] = units
  --@ window take
end
