-- release: give slots back.
-- KEYS  gauges
-- ARGV  now ('': the server's clock); then the permit ids
-- Reply for each permit: 2 if every key held it, 1 if some did, 0 if none; then for each key 1 if it held it, else 0
--@ clock
local first, stride = 2, 1
--@ permits
--@ slots
--@ outcomes
local states = {}
for k, key in ipairs(KEYS) do states[k] = slots.find(key) end
local reply = outcomes(states, function(state, id) state.held[id] = nil end)
for _, state in ipairs(states) do slots.remove(state) end
return reply
