-- finish: end permits in any mix of gauges and windows, first setting windows to the units really used.
-- KEYS  gauges and windows
-- ARGV  now ('': the server's clock); for each key the window's length in ms, or 's' for a gauge; then for each permit
--       its id and for each window, in the order of KEYS, the units really used, or '-' to let the charge stand
-- Reply for each permit: 2 if every key held it, 1 if some did, 0 if none; then for each key 1 if it held it, else 0
--@ clock
local first, stride = 2 + keys, 1
for k = 1, keys do
  if ARGV[1 + k] ~= 's' then stride = stride + 1 end
end
--@ permits
--@ window fields
local states, column = {false}, 0
for k = 1, keys do
  local key, state = KEYS[k]
  if ARGV[1 + k] == 's' then
    --@ slots find
  else
    local span = tonumber(ARGV[1 + k])
    column = column + 1
    --@ window find
    state = {column = column, used = used, held = held, changed = false, gone = false}
  end
  states[k] = state
end
--@ outcomes
-- ZREM and HDEL come first for each key: the server allows them when out of memory, and then what follows.
for k = 1, keys do
  local state = states[k]
  if state.column then
    --@ window remove
  else
    --@ slots remove
  end
end
return reply

--# act
if state.column then
  local units = tonumber(ARGV[figures + state.column])
  if units then
    --@ window charge
  end
end
state.gone = true
if same then state.held[who] = false end
