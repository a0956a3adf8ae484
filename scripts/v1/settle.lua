-- Built from src/settle.lua; v1 of the contract in scripts/README.md.
-- settle: set the charges of open permits to absolute figures; the permits stay open.
-- KEYS  windows
-- ARGV  now ('': the server's clock); for each key the window's length in ms; then for each permit its id and for
--       each window the units really used, or '-' to let the charge stand
-- Reply for each permit: 2 if every key held it, 1 if some did, 0 if none; then for each key 1 if it held it, else 0
-- Time is the server's, in whole milliseconds. A caller may drive it (ARGV[1]): then keys get an hour more to live,
-- for the server goes on expiring them by its own clock.
local HOUR, MINUTE = 3600000, 60000
local now, spare = tonumber(ARGV[1]), HOUR
if not now then
  local time = redis.call('TIME')
  now, spare = time[1] * 1000 + math.floor(time[2] / 1000), 0
end
local first, stride = 2 + #KEYS, 1 + #KEYS
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
local states = {false}
for k = 1, #KEYS do
  local key, span, column, state = KEYS[k], tonumber(ARGV[1 + k]), k
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
  state = {key = key, column = column, used = used, held = held, new = false, gone = false}
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
      local units = tonumber(ARGV[first + (p - 1) * stride + state.column])
      if units and units ~= state.held[id] then
        -- Replaces a permit's charge. A count that went beyond what is exact stays there until the window rolls.
        if units ~= state.held[id] and state.used < BEYOND then
          state.used, state.changed = math.max(0, math.min(state.used - state.held[id] + units, BEYOND)), true
        end
        if state.gone then state.gone[#state.gone + 1] = ':' .. id else state.gone = {':' .. id} end
        local cost = units
        state.held[id] = units
        local new = state.new
        if new then
          local n = #new
          new[n + 1], new[n + 2] = ':' .. id, cost
        else
          state.new = {':' .. id, cost}
        end
      end
    else
      reply[at + k] = 0
    end
  end
  if held > 0 then reply[at] = held == #KEYS and 2 or 1 end
  at = at + 1 + #KEYS
end
for k = 1, #KEYS do
  local state = states[k]
  if state.gone then
    -- HDEL first: the server allows it when out of memory, and then the HSET that follows.
    redis.call('HDEL', state.key, unpack(state.gone))
    redis.call('HSET', state.key, 'n', state.used, unpack(state.new))
  end
end
return reply
