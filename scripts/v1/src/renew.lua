-- renew: let slots that are still held live on for a whole lease from now. Never shortens one, never revives one.
-- KEYS  gauges
-- ARGV  now ('': the server's clock); for each key the lease in ms; then the permit ids
-- Reply for each permit: 2 if every key held it, 1 if some did, 0 if none; then for each key 1 if it held it, else 0
--@ clock
local first, stride = 2 + keys, 1
--@ permits
local states = {false}
for k = 1, keys do
  local key, state = KEYS[k]
  --@ slots find
  state[SPAN], state[NEW], state.ttl = tonumber(ARGV[1 + k]), {}, call('PTTL', key)
  states[k] = state
end
--@ outcomes
for k = 1, keys do
  local state = states[k]
  if state[NEW][1] then
    -- PEXPIRE first: the server allows it when out of memory, and then the ZADD that follows.
    call('PEXPIRE', KEYS[k], math.max(state.ttl, state[SPAN] + 2 * HOUR + spare))
    call('ZADD', KEYS[k], unpack(state[NEW]))
  end
end
return reply

--# act
local new = state[NEW]
new[#new + 1] = math.max(held, now + state[SPAN])
new[#new + 1] = ids[skip + p]
