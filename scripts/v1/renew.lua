-- Built from src/renew.lua; v1 of the contract in scripts/README.md.
-- renew: let slots that are still held live on for a whole lease from now. Never shortens one, never revives one.
-- KEYS  gauges
-- ARGV  now ('': the server's clock); for each key the lease in ms; then the permit ids
-- Reply for each permit: 2 if every key held it, 1 if some did, 0 if none; then for each key 1 if it held it, else 0
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
local HELD, GONE = 1, 2
local first, stride = 2 + keys, 1
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
  local key = KEYS[k]
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
  state = {held, gone, span = ARGV[1 + k] + 0, ttl = call('PTTL', key), new = {}}
  if states then states[k] = state end
end
-- What becomes of permits already held: for each key that holds one, permit by permit, the script's own part `act`.
-- Reply for each permit: 2 if every key held it, 1 if some did, 0 if none; then for each key 1 if it held it, else 0.
local figures, reply, at = first, {0, 0}, 1
for p = 1, permits do
  local who, all = same and same[p], 0
  reply[at] = 0
  for k = 1, keys do
    if states then state = states[k] end
    local held = state[HELD]
    if held and same then held = held[who] end
    if held then
      reply[at + k] = 1
      all = all + 1
      local new = state.new
      new[#new + 1] = math.max(held, now + state.span)
      new[#new + 1] = ids[skip + p]
    else
      reply[at + k] = 0
    end
  end
  if all > 0 then reply[at] = all == keys and 2 or 1 end
  at, figures = at + 1 + keys, figures + stride
end
for k = 1, keys do
  if states then state = states[k] end
  if state.new[1] then
    -- PEXPIRE first: the server allows it when out of memory, and then the ZADD that follows.
    call('PEXPIRE', KEYS[k], math.max(state.ttl, state.span + 2 * HOUR + spare))
    call('ZADD', KEYS[k], unpack(state.new))
  end
end
return reply
