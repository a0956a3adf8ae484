-- Built from src/release.lua; v1 of the contract in scripts/README.md.
-- release: give slots back.
-- KEYS  gauges
-- ARGV  now ('': the server's clock); then the permit ids
-- Reply for each permit: 2 if every key held it, 1 if some did, 0 if none; then for each key 1 if it held it, else 0
-- Time is the server's, in whole milliseconds. A caller may drive it (ARGV[1]): then keys get an hour more to live,
-- for the server goes on expiring them by its own clock.
local HOUR, MINUTE = 3600000, 60000
local now, spare = tonumber(ARGV[1]), HOUR
if not now then
  local time = redis.call('TIME')
  now, spare = time[1] * 1000 + math.floor(time[2] / 1000), 0
end
local first, stride = 2, 1
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
local states = {false}
for k = 1, #KEYS do
  local key, state = KEYS[k]
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
  states[k] = state
end
-- What becomes of permits already held: for each key that holds one, permit by permit, the script's own part `act`.
-- Reply for each permit: 2 if every key held it, 1 if some did, 0 if none; then for each key 1 if it held it, else 0.
local reply, at = {0, 0}, 1
for p = 1, permits do
  local id, held = ids[skip + p], 0
  reply[at] = 0
  for k = 1, #KEYS do
    local state = states[k]
    if state.held and state.held[id] then
      reply[at + k] = 1
      held = held + 1
      state.held[id] = nil
    else
      reply[at + k] = 0
    end
  end
  if held > 0 then reply[at] = held == #KEYS and 2 or 1 end
  at = at + 1 + #KEYS
end
for k = 1, #KEYS do
  local state = states[k]
  if state.gone then redis.call('ZREM', state.key, unpack(ids, skip + 1)) end
end
return reply
