-- Built from src/acquire.lua; v1 of the contract in scripts/README.md.
-- acquire: take a slot of each gauge, or of none.
-- KEYS  gauges
-- ARGV  now ('': the server's clock); mode ('': take, 'dry': only say, 'rejoin': take even above the limit); for each
--       key its limit ('5', '~5': never refuse, only report, '-': no limit) and its lease in ms; then the permit ids
-- Reply for each permit: 1 granted, 2 granted before, 0 refused; then for each key four numbers: verdict (0 taken or
--       free, 1 full, 2 never fits, 3 above the limit but not refused, 4 held before), slots in use, ms until the first
--       lease ends, leases found ended unreleased and dropped
-- Time is the server's, in whole milliseconds. A caller may drive it (ARGV[1]): then keys get an hour more to live,
-- for the server goes on expiring them by its own clock.
local HOUR = 3600000
local KEYS, ARGV, call, keys = KEYS, ARGV, redis.call, #KEYS
local now, spare = ARGV[1] ~= '' and tonumber(ARGV[1]), HOUR
if not now then
  local time = call('TIME')
  now, spare = time[1] * 1000 + time[2] / 1000, 0
  now = now - now % 1
end
-- What is known of a key is a list with these places: it takes a third of the memory of one with names.
local HELD, SPAN, USED, RESET, LIMIT, NEW = 1, 2, 3, 4, 5, 6
local LAPSED, FIRST = 7, 8
local first, stride = 3 + 2 * keys, 1
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
-- What is known of key k is in states[k]; of a single key it is in `state` itself, and stays there.
local state, states = nil, keys > 1 and {}
-- Of several permits same[p] is the first with the id of permit p: what is known of an id is kept in its place. One
-- permit by itself needs no tables of what is known, nor does one key: to make one costs about as much as a command.
local same = false
if permits > 1 then
  local seen = {}
  same = {}
  for p = 1, permits do
    local id = ids[skip + p]
    if not seen[id] then seen[id] = p end
    same[p] = seen[id]
  end
end
for k = 1, keys do
  local key, text, span = KEYS[k], ARGV[1 + 2 * k], ARGV[2 + 2 * k] + 0
  local most, observed = tonumber(text), false
  if not most then
    observed = string.sub(text, 1, 1) == '~'
    if observed then text = string.sub(text, 2) end
    most = text == '-' and math.huge or text + 0
  end
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
  if observed then state.observed = true end
  if states then states[k] = state end
end
-- Nothing has been written yet. ARGV holds the permits' costs at the
-- windows' columns.
local TAKES, FULL, NEVER, OBSERVED, BEFORE = 0, 1, 2, 3, 4
local mode, costs, reply, at = ARGV[2], first, {0, 0, 0, 0, 0}, 1
for p = 1, permits do
  local who, status, record = same and same[p], 2, at
  reply[at] = 0
  for k = 1, keys do
    if states then state = states[k] end
    local verdict, cost = BEFORE, 1
    local held = state[HELD]
    if held and same then held = held[who] end
    if not held then
      if state[USED] + cost <= state[LIMIT] then
        verdict = TAKES
      elseif state.observed or mode == 'rejoin' then
        verdict = OBSERVED
      else
        verdict = cost > state[LIMIT] and NEVER or FULL
        status = 0
      end
      if status == 2 then status = 1 end
    end
    -- The cost stands where what is in use will, once all keys have been asked.
    reply[record + 1], reply[record + 2], reply[record + 3], reply[record + 4] = verdict, cost, 0, 0
    record = record + 4
  end
  reply[at], record = status, at
  for k = 1, keys do
    if states then state = states[k] end
    local used, reset = state[USED], state[RESET]
    if status == 1 and reply[record + 1] ~= BEFORE then
      local cost = reply[record + 2]
      used = used + cost
      if state[SPAN] < reset or reset == 0 then reset = state[SPAN] end
      if p < permits then
        if not state[HELD] then state[HELD] = {} end
        state[HELD][who] = true
      end
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
      state[USED], state[RESET] = used, reset
    end
    reply[record + 2], reply[record + 3] = used, reset
    record = record + 4
  end
  at, costs = record + 1, costs + stride
end
if mode ~= 'dry' then
  for k = 1, keys do
    if states then state = states[k] end
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
  end
end
return reply
