-- Built from src/reserve.lua; v1 of the contract in scripts/README.md.
-- reserve: charge units to each window, or to none.
-- KEYS  windows
-- ARGV  now ('': the server's clock); mode ('': charge, 'dry': only say, 'rejoin': charge even above the limit); for
--       each key its limit ('600', '~600': never refuse, only report, '-': no limit) and its length in ms; then for
--       each permit its id and its cost for each window
-- Reply for each permit: 1 granted, 2 granted before, 0 refused; then for each key four numbers: verdict (0 charged or
--       free, 1 full, 2 never fits, 3 above the limit but not refused, 4 held before), units used, ms until it rolls, 0
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
local LIVE, COLUMN, MINUTE = 7, 9, 60000
local first, stride = 3 + 2 * keys, 1 + keys
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
local BEYOND = 9007199254740992 -- 2^53: from here on numbers are no longer exact
local fields
if stride > 1 then
  fields = {':' .. ids[1]}
  for p = 2, permits do fields[p] = ':' .. ids[p] end
  fields[permits + 1], fields[permits + 2] = 's', 'n'
end
for k = 1, keys do
  local key, text, span, column = KEYS[k], ARGV[1 + 2 * k], ARGV[2 + 2 * k] + 0, k
  local most, observed = tonumber(text), false
  if not most then
    observed = string.sub(text, 1, 1) == '~'
    if observed then text = string.sub(text, 2) end
    most = text == '-' and math.huge or text + 0
  end
  -- What admission must know, read before anything is written. A start in the future (the clock was set back)
  -- counts as now.
  -- A window lives from its first charge until its span has passed. What it holds begins with the permits' charges.
  local held = call('HMGET', key, unpack(fields))
  local start, used = tonumber(held[permits + 1]), held[permits + 2]
  local live = start and now < start + span
  if not live then held = false elseif not same then held = held[1] end
  local reset, moved, stale = 0, false, false
  used = live and tonumber(used) or 0
  if live then
    reset, moved = start + span - now, start > now
    if moved then reset = span end
  else
    stale = start or call('EXISTS', key) == 1
  end
  state = {held, span, used, reset, most, false, live, false, column}
  if moved then state.moved = true end
  if stale then state.stale = true end
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
      cost = ARGV[costs + k] + 0
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
      if used > BEYOND then used = BEYOND end
      local new = state[NEW]
      if not same then
        state[NEW] = cost
      elseif new then
        local n = #new
        new[n + 1], new[n + 2] = fields[p], cost
      else
        state[NEW] = {fields[p], cost}
      end
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
    local key, new = KEYS[k], state[NEW]
    if state[LIVE] then
      if state.moved then call('HSET', key, 's', now) end
      if new and same then
        call('HSET', key, 'n', state[USED], unpack(new))
      elseif new then
        call('HSET', key, 'n', state[USED], fields[1], new)
      end
    elseif new then
      if state.stale then
        -- HSET first: the server refuses it when out of memory, and would no longer once UNLINK had written.
        call('HSET', key, 's', now)
        call('UNLINK', key)
      end
      if same then
        call('HSET', key, 's', now, 'n', state[USED], unpack(new))
      else
        call('HSET', key, 's', now, 'n', state[USED], fields[1], new)
      end
      call('PEXPIRE', key, state[SPAN] + MINUTE + spare)
    end
  end
end
return reply
