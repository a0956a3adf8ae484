-- release: give slots back.
-- KEYS  gauges
-- ARGV  now ('': the server's clock); then the permit ids
-- Reply for each permit: 2 if every key held it, 1 if some did, 0 if none; then for each key 1 if it held it, else 0
--@ clock
local first, stride = 2, 1
--@ permits
local states = {false}
for k = 1, keys do
  local key, state = KEYS[k]
  --@ slots find
  states[k] = state
end
--@ outcomes
for k = 1, keys do
  local state = states[k]
  --@ slots remove
end
return reply

--# act
if same then state[HELD][who] = false end
