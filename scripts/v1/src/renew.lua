-- renew: let slots that are still held live on for a whole lease from now. Never shortens one, never revives one.
-- KEYS  gauges
-- ARGV  now ('': the server's clock); for each key the lease in ms; then the permit ids
-- Reply for each permit: 2 if every key held it, 1 if some did, 0 if none; then for each key 1 if it held it, else 0
--@ clock
--@ outcomes places
local first, stride = 2 + keys, 1
--@ permits
for k = 1, keys do
  local key = KEYS[k]
  --@ slots find
  state = {held, gone, span = ARGV[1 + k] + 0, ttl = call('PTTL', key), new = {}}
  if states then states[k] = state end
end
--@ outcomes all
for k = 1, keys do
  if states then state = states[k] end
  if state.new[1] then
    -- PEXPIRE first: the server allows it when out of memory, and then the ZADD that follows.
    call('PEXPIRE', KEYS[k], math.max(state.ttl, state.span + 2 * HOUR + spare))
    call('ZADD', KEYS[k], unpack(state.new))
  end
end
return reply

--# act
local new = state.new
new[#new + 1] = math.max(held, now + state.span)
new[#new + 1] = ids[skip + p]
