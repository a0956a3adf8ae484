-- A gauge of slots: a sorted set of permit ids, each scored with the time its lease ends.

--# places
local LAPSED, FIRST = 7, 8

--# open
-- What admission must know, read before anything is written.
local used, reset, lapsed, hour, held, ended = call('ZCARD', key), 0, 0, false, false
if used > 0 then
  local ends = call('ZRANGE', key, 0, 0, 'WITHSCORES')[2] + 0
  hour = ends - ends % HOUR
  if ends <= now then
    lapsed = call('ZCOUNT', key, '-inf', now)
    used = used - lapsed
    ends = tonumber(call('ZRANGE', key, lapsed, lapsed, 'WITHSCORES')[2])
  end
  if ends then reset = ends - now end
  if same then
    held = call('ZMSCORE', key, unpack(ids, skip + 1))
    if lapsed > 0 then
      ended = {}
      for p = 1, permits do
        if held[p] and held[p] + 0 <= now then held[p], ended[p] = false, true end
      end
    end
  else
    held = call('ZSCORE', key, ids[skip + 1])
    if lapsed > 0 and held and held + 0 <= now then held, ended = false, true end
  end
end
state = {held, span, used, reset, most, false, lapsed, hour}
if ended then state.ended = ended end

--# take
local new = state[NEW]
if not same then
  state[NEW] = true
elseif new then
  local n = #new
  new[n + 1], new[n + 2] = now + state[SPAN], ids[skip + p]
else
  state[NEW] = {now + state[SPAN], ids[skip + p]}
end
local ended = state.ended
if ended and (not same or ended[who]) then state[LAPSED] = state[LAPSED] - 1 end

--# write
-- Adds before it prunes: out of memory must strike before anything has changed. Says how many leases it found
-- that had ended unreleased and dropped; a thousand at most, the next call drops the next.
if state[NEW] then
  local key, ends = KEYS[k], now + state[SPAN]
  if same then call('ZADD', key, unpack(state[NEW])) else call('ZADD', key, ends, ids[skip + 1]) end
  if state[LAPSED] > 0 then
    reply[4 * k + 1] = math.min(state[LAPSED], 1000)
    call('ZREMRANGEBYRANK', key, 0, reply[4 * k + 1] - 1)
  end
  -- The key must outlive the slot by an hour. Every slot sees to it that the key outlives the hour in which its
  -- lease ends by an hour: where there is one whose lease ends in the same hour, nothing is left to be done.
  local first, hour = state[FIRST], ends - ends % HOUR
  if not first or first ~= hour and call('PTTL', key) < hour + 2 * HOUR - now + spare then
    call('PEXPIRE', key, state[SPAN] + 2 * HOUR + spare)
  end
end

--# find
-- What the end of a permit must know. A slot whose lease has ended is no longer held, but still to be removed.
local held, gone = false, false
if same then
  held = call('ZMSCORE', key, unpack(ids, skip + 1))
  for p = 1, permits do
    if held[p] then
      local ends = held[p] + 0
      held[p], gone = ends > now and ends, true
    end
  end
else
  local score = call('ZSCORE', key, ids[skip + 1])
  if score then
    local ends = score + 0
    held, gone = ends > now and ends, true
  end
end

--# remove
if state[GONE] then
  if same then call('ZREM', KEYS[k], unpack(ids, skip + 1)) else call('ZREM', KEYS[k], ids[skip + 1]) end
end
