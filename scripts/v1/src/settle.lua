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
  state = {column = column, used = used, held = held, new = false, gone = false}
  states[k] = state
end
--@ outcomes
for k = 1, keys do
  local state = states[k]
  if state.gone then
    -- HDEL first: the server allows it when out of memory, and then the HSET that follows.
    call('HDEL', KEYS[k], unpack(state.gone))
    call('HSET', KEYS[k], 'n', state.used, unpack(state.new))
  end
end
return reply

--# act
local units = tonumber(ARGV[figures + state.column])
if units and units ~= tonumber(held) then
  --@ window charge
  if not state.gone then state.gone, state.new = {}, {} end
  local n = #state.gone
  state.gone[n + 1], state.new[2 * n + 1], state.new[2 * n + 2] = fields[p], fields[p], units
  if same then state.held[who] = units end
end
