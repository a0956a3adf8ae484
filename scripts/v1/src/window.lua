-- A window of units: a hash of its start `s`, the units used `n`, and `:<id>` for the charge of each open permit.

--# fields
local BEYOND = 9007199254740992 -- 2^53: from here on numbers are no longer exact
local fields
if stride > 1 then
  fields = {'s', 'n', ':' .. ids[1]}
  for p = 2, permits do fields[p + 2] = ':' .. ids[p] end
end

--# find
-- A window lives from its first charge until its span has passed. A start in the future (the clock was set back)
-- counts as now.
local got = redis.call('HMGET', key, unpack(fields))
local start, used, reset, held = tonumber(got[1]), 0, 0
if start and now < start + span then
  used, reset = tonumber(got[2]) or 0, math.min(start + span - now, span)
  for p = 1, permits do
    if got[p + 2] then
      if not held then held = {} end
      held[ids[p]] = tonumber(got[p + 2])
    end
  end
end

--# open
-- What admission must know, read before anything is written.
--@ window find
state = {
  key = key, span = span, column = column, used = used, reset = reset, live = reset > 0, limit = 0, new = false
}
if held then state.held = held end
if reset == 0 then
  state.stale = start or redis.call('EXISTS', key) == 1
elseif start > now then
  state.moved = true
end

--# take
local new = state.new
if new then
  local n = #new
  new[n + 1], new[n + 2] = ':' .. id, cost
else
  state.new = {':' .. id, cost}
end

--# write
local key = state.key
if state.live then
  if state.moved then redis.call('HSET', key, 's', now) end
  if state.new then redis.call('HSET', key, 'n', state.used, unpack(state.new)) end
elseif state.new then
  if state.stale then
    -- HSET first: the server refuses it when out of memory, and would no longer once UNLINK had written.
    redis.call('HSET', key, 's', now)
    redis.call('UNLINK', key)
  end
  redis.call('HSET', key, 's', now, 'n', state.used, unpack(state.new))
  redis.call('PEXPIRE', key, state.span + MINUTE + spare)
end

--# charge
-- Replaces a permit's charge. A count that went beyond what is exact stays there until the window rolls.
if units ~= state.held[id] and state.used < BEYOND then
  state.used, state.changed = math.max(0, math.min(state.used - state.held[id] + units, BEYOND)), true
end

--# remove
if state.held then redis.call('HDEL', state.key, unpack(fields, 3)) end
if state.changed then redis.call('HSET', state.key, 'n', state.used) end
