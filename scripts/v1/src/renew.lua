-- renew: let slots that are still held live on for a whole lease from now. Never shortens one, never revives one.
-- KEYS  gauges
-- ARGV  now ('': the server's clock); for each key the lease in ms; then the permit ids
-- Reply for each permit: 2 if every key held it, 1 if some did, 0 if none; then for each key 1 if it held it, else 0
--@ clock
local first, stride = 2 + #KEYS, 1
--@ permits
local states = {false}
for k = 1, #KEYS do
  local key, state = KEYS[k]
  --@ slots find
  state.span, state.new, state.ttl = tonumber(ARGV[1 + k]), {}, redis.call('PTTL', key)
  states[k] = state
end
--@ outcomes
for k = 1, #KEYS do
  local state = states[k]
  if state.new[1] then
    -- PEXPIRE first: the server allows it when out of memory, and then the ZADD that follows.
    redis.call('PEXPIRE', state.key, math.max(state.ttl, state.span + 2 * HOUR + spare))
    redis.call('ZADD', state.key, unpack(state.new))
  end
end
return reply

--# act
state.new[#state.new + 1] = math.max(state.held[id], now + state.span)
state.new[#state.new + 1] = id
