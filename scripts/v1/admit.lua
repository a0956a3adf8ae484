-- Built from src/admit.lua; v1 of the contract in scripts/README.md.
-- admit: start permits in any mix of gauges and windows, each in all of them or in none.
-- KEYS  gauges and windows
-- ARGV  now ('': the server's clock); mode ('': take, 'dry': only say, 'rejoin': take even above the limit); for each
--       key its kind ('s' gauge, 'w' window), its limit ('5', '~5': never refuse, only report, '-': no limit) and its
--       lease or length in ms; then for each permit its id and for each window, in the order of KEYS, its cost
-- Reply for each permit: 1 granted, 2 granted before, 0 refused; then for each key four numbers: verdict (0 taken or
--       free, 1 full, 2 never fits, 3 above the limit but not refused, 4 held before), slots or units in use, ms until
--       the first lease ends or the window rolls, leases found ended unreleased and dropped
-- Time is the server's, in whole milliseconds. A caller may drive it (ARGV[1]): then keys get an hour more to live,
-- for the server goes on expiring them by its own clock.
local HOUR, MINUTE = 3600000, 60000
local now, spare = tonumber(ARGV[1]), HOUR
if not now then
  local time = redis.call('TIME')
  now, spare = time[1] * 1000 + math.floor(time[2] / 1000), 0
end
local first, stride = 3 + 3 * #KEYS, 1
for k = 1, #KEYS do
  if ARGV[3 * k] == 'w' then stride = stride + 1 end
end
-- The permits: from `first` on, every `stride` arguments are an id and its figures.
local permits, ids, skip = (#ARGV - first + 1) / stride, ARGV, first - 1
if permits < 1 or permits > 1000 or permits % 1 ~= 0 then
  return redis.error_reply(string.format(
    'ERR pyslot: expected 1 to 1000 permits of %d arguments each, got %d arguments',
    stride, math.max(0, #ARGV - first + 1)))
end
-- The id of permit p is ids[skip + p].
if stride > 1 then
  ids, skip = {ARGV[first]}, 0
  for p = 2, permits do ids[p] = ARGV[first + (p - 1) * stride] end
end
local BEYOND = 9007199254740992 -- 2^53: from here on numbers are no longer exact
local fields
if stride > 1 then
  fields = {'s', 'n', ':' .. ids[1]}
  for p = 2, permits do fields[p + 2] = ':' .. ids[p] end
end
local states, column = {false}, 0
for k = 1, #KEYS do
  local key, text, span, state = KEYS[k], ARGV[1 + 3 * k], tonumber(ARGV[2 + 3 * k])
  if ARGV[3 * k] == 'w' then
    column = column + 1
    -- What admission must know, read before anything is written.
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
    state = {
      key = key, span = span, column = column, used = used, reset = reset, live = reset > 0, limit = 0, new = false
    }
    if held then state.held = held end
    if reset == 0 then
      state.stale = start or redis.call('EXISTS', key) == 1
    elseif start > now then
      state.moved = true
    end
  else
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
  end
  local most = tonumber(text)
  if not most then
    state.observed = string.sub(text, 1, 1) == '~'
    if state.observed then text = string.sub(text, 2) end
    most = text == '-' and math.huge or tonumber(text)
  end
  state.limit = most
  states[k] = state
end
-- Nothing has been written yet. `states` holds one state per key, in order; ARGV holds the permits' costs at the
-- windows' columns.
local TAKES, FULL, NEVER, OBSERVED, HELD = 0, 1, 2, 3, 4
local mode, BEYOND = ARGV[2], 9007199254740992 -- 2^53: from here on numbers are no longer exact
local reply, at = {0, 0, 0, 0, 0}, 1
for p = 1, permits do
  local id, status = ids[skip + p], 2
  reply[at] = 0
  for k = 1, #KEYS do
    local state, verdict, cost = states[k], HELD, 1
    if not (state.held and state.held[id]) then
      if state.column then cost = tonumber(ARGV[first + (p - 1) * stride + state.column]) end
      if state.used + cost <= state.limit then
        verdict = TAKES
      elseif state.observed or mode == 'rejoin' then
        verdict = OBSERVED
      else
        verdict = cost > state.limit and NEVER or FULL
        status = 0
      end
      if status == 2 then status = 1 end
    end
    local record = at + 4 * k
    reply[record - 3], reply[record - 2], reply[record - 1], reply[record] = verdict, cost, 0, 0
  end
  reply[at] = status
  for k = 1, #KEYS do
    local state, record = states[k], at + 4 * k
    if status == 1 and reply[record - 3] ~= HELD then
      local cost = reply[record - 2]
      state.used = math.min(state.used + cost, BEYOND)
      if state.span < state.reset or state.reset == 0 then state.reset = state.span end
      if p < permits then
        if state.held then state.held[id] = true else state.held = {[id] = true} end
      end
      if state.column then
        local new = state.new
        if new then
          local n = #new
          new[n + 1], new[n + 2] = ':' .. id, cost
        else
          state.new = {':' .. id, cost}
        end
      else
        local new = state.new
        if new then
          local n = #new
          new[n + 1], new[n + 2] = now + state.span, id
        else
          state.new = {now + state.span, id}
        end
        if state.ended and state.ended[id] then state.lapsed = state.lapsed - 1 end
      end
    end
    reply[record - 2], reply[record - 1] = state.used, state.reset
  end
  at = at + 1 + 4 * #KEYS
end
if mode ~= 'dry' then
  for k = 1, #KEYS do
    local state = states[k]
    if state.column then
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
    else
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
    end
  end
end
return reply
