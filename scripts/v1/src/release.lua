-- release: give slots back.
-- KEYS  gauges
-- ARGV  now ('': the server's clock); then the permit ids
-- Reply for each permit: 2 if every key held it, 1 if some did, 0 if none; then for each key 1 if it held it, else 0
--@ clock
--@ outcomes places
local first, stride = 2, 1
--@ permits
for k = 1, keys do
  local key = KEYS[k]
  --@ slots find
  state = {held, gone}
  if states then states[k] = state end
end
--@ outcomes all
for k = 1, keys do
  if states then state = states[k] end
  --@ slots remove
end
return reply

--# act
if same then state[HELD][who] = false end
