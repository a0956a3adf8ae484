-- finish: end permits in any mix of gauges and windows, first setting windows to the units really used.
-- KEYS  gauges and windows
-- ARGV  now ('': the server's clock); for each key the window's length in ms, or 's' for a gauge; then for each permit
--       its id and for each window, in the order of KEYS, the units really used, or '-' to let the charge stand
-- Reply for each permit: 2 if every key held it, 1 if some did, 0 if none; then for each key 1 if it held it, else 0
--@ clock
local first, stride, columns = 2 + #KEYS, 1, {}
for k = 1, #KEYS do
  if ARGV[1 + k] ~= 's' then
    columns[k] = stride
    stride = stride + 1
  end
end
--@ permits
--@ slots
--@ window
--@ outcomes
local states = {}
for k, key in ipairs(KEYS) do
  states[k] = columns[k] and window.find(key, tonumber(ARGV[1 + k])) or slots.find(key)
  states[k].column = columns[k]
end
local reply = outcomes(states, function(state, id, p)
  if state.column then
    local units = tonumber(ARGV[first + (p - 1) * stride + state.column])
    if units then window.charge(state, id, units) end
    state.gone = state.gone or {}
    state.gone[#state.gone + 1] = ':' .. id
  end
  state.held[id] = nil
end)
-- ZREM and HDEL come first for each key: the server allows them when out of memory, and then what follows.
for _, state in ipairs(states) do state.kind.remove(state) end
return reply
