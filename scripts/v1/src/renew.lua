-- renew: let slots that are still held live on for a whole lease from now. Never shortens one, never revives one.
-- KEYS  gauges
-- ARGV  now ('': the server's clock); for each key the lease in ms; then the permit ids
-- Reply for each permit: 2 if every key held it, 1 if some did, 0 if none; then for each key 1 if it held it, else 0
--@ clock
local first, stride = 2 + #KEYS, 1
--@ permits
--@ slots
--@ outcomes
local states = {}
for k, key in ipairs(KEYS) do
  local state = slots.find(key)
  state.span, state.new, state.ttl = tonumber(ARGV[1 + k]), {}, redis.call('PTTL', key)
  states[k] = state
end
local reply = outcomes(states, function(state, id)
  state.new[#state.new + 1] = math.max(state.held[id], now + state.span)
  state.new[#state.new + 1] = id
end)
for _, state in ipairs(states) do
  if state.new[1] then
    -- PEXPIRE first: the server allows it when out of memory, and then the ZADD that follows.
    redis.call('PEXPIRE', state.key, math.max(state.ttl, state.span + 2 * HOUR + spare))
    redis.call('ZADD', state.key, unpack(state.new))
  end
end
return reply
