-- A gauge of slots: a sorted set of permit ids, each scored with the time its lease ends.

--# open
-- What admission must know, read before anything is written.
local size = redis.call('ZCARD', key)
state = {key = key, span = span, used = size, reset = 0, lapsed = 0, hour = false, limit = 0, new = false}
if size > 0 then
  local ends = tonumber(redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2])
  state.hour = math.floor(ends / HOUR)
  if ends <= now then
    state.lapsed = redis.call('ZCOUNT', key, '-inf', now)
    state.used = size - state.lapsed
    ends = tonumber(redis.call('ZRANGE', key, state.lapsed, state.lapsed, 'WITHSCORES')[2])
  end
  if ends then state.reset = ends - now end
  local scores = redis.call('ZMSCORE', key, unpack(ids, skip + 1))
  for p = 1, permits do
    if scores[p] then
      local id, part = ids[skip + p], tonumber(scores[p]) > now and 'held' or 'ended'
      if state[part] then state[part][id] = true else state[part] = {[id] = true} end
    end
  end
end

--# take
local new = state.new
if new then
  local n = #new
  new[n + 1], new[n + 2] = now + state.span, id
else
  state.new = {now + state.span, id}
end
if state.ended and state.ended[id] then state.lapsed = state.lapsed - 1 end

--# write
-- Adds before it prunes: out of memory must strike before anything has changed. Says how many leases it found
-- that had ended unreleased and dropped; a thousand at most, the next call drops the next.
if state.new then
  local key = state.key
  redis.call('ZADD', key, unpack(state.new))
  if state.lapsed > 0 then
    reply[4 * k + 1] = math.min(state.lapsed, 1000)
    redis.call('ZREMRANGEBYRANK', key, 0, reply[4 * k + 1] - 1)
  end
  -- The key must outlive the slot by an hour. Every slot sees to it that the key outlives the hour in which its
  -- lease ends by an hour: where there is one whose lease ends in the same hour, nothing is left to be done.
  local hour = math.floor((now + state.span) / HOUR)
  if state.hour ~= hour and (not state.hour or redis.call('PTTL', key) < (hour + 2) * HOUR - now + spare) then
    redis.call('PEXPIRE', key, state.span + 2 * HOUR + spare)
  end
end

--# find
-- What the end of a permit must know. A slot whose lease has ended is no longer held, but still to be removed.
state = {key = key, held = false, gone = false}
local scores = redis.call('ZMSCORE', key, unpack(ids, skip + 1))
for p = 1, permits do
  if scores[p] then
    local id, ends = ids[skip + p], tonumber(scores[p])
    state.gone = true
    if ends > now then
      if state.held then state.held[id] = ends else state.held = {[id] = ends} end
    end
  end
end

--# remove
if state.gone then redis.call('ZREM', state.key, unpack(ids, skip + 1)) end
