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
local ids = {}
for at = first, #ARGV, stride do ids[#ids + 1] = ARGV[at] end
if #ids < 1 or #ids > 1000 or (#ARGV - first + 1) % stride ~= 0 then
  return redis.error_reply(string.format(
    'ERR pyslot: expected 1 to 1000 permits of %d arguments each, got %d arguments',
    stride, math.max(0, #ARGV - first + 1)))
end
-- A window of units: a hash of its start `s`, the units used `n`, and `:<id>` for the charge of each open permit.
local window = {}
local BEYOND = 9007199254740992
local fields = {'s', 'n'}
for p = 1, #ids do fields[p + 2] = ':' .. ids[p] end

-- A window lives from its first charge until `per` has passed. A start in the future (the clock was set back) counts
-- as now.
function window.find(key, per)
  local got = redis.call('HMGET', key, unpack(fields))
  local start = tonumber(got[1])
  local w = {kind = window, key = key, start = start, span = per, used = 0, reset = 0, held = {}, new = {}}
  if start and now < start + per then
    w.live, w.used, w.reset = true, tonumber(got[2]) or 0, math.min(start + per - now, per)
    w.moved = start > now
    for p = 1, #ids do w.held[ids[p]] = tonumber(got[p + 2]) end
  end
  return w
end

-- What admission must know, read before anything is written.
function window.open(key, per)
  local w = window.find(key, per)
  if not w.live then w.stale = w.start or redis.call('EXISTS', key) == 1 end
  return w
end

function window.take(w, id, cost)
  local new = w.new
  new[#new + 1] = ':' .. id
  new[#new + 1] = cost
end

function window.write(w)
  local key = w.key
  if w.live then
    if w.moved then redis.call('HSET', key, 's', now) end
    if w.new[1] then redis.call('HSET', key, 'n', w.used, unpack(w.new)) end
    return 0
  end
  if w.stale then
    -- HSET first: the server refuses it when out of memory, and would no longer once UNLINK had written.
    redis.call('HSET', key, 's', now)
    redis.call('UNLINK', key)
  end
  redis.call('HSET', key, 's', now, 'n', w.used, unpack(w.new))
  redis.call('PEXPIRE', key, w.span + MINUTE + spare)
  return 0
end

-- Replaces a permit's charge. A count that went beyond what is exact stays there until the window rolls.
function window.charge(w, id, units)
  if units ~= w.held[id] and w.used < BEYOND then
    w.used, w.changed = math.max(0, math.min(w.used - w.held[id] + units, BEYOND)), true
  end
end

function window.remove(w)
  if w.gone then redis.call('HDEL', w.key, unpack(w.gone)) end
  if w.changed then redis.call('HSET', w.key, 'n', w.used) end
end
-- What becomes of permits already held: `act` is called for each key that holds one, permit by permit.
-- Reply for each permit: 2 if every key held it, 1 if some did, 0 if none; then for each key 1 if it held it, else 0.
local function outcomes(states, act)
  local reply, at, size = {}, 1, #states
  for p, id in ipairs(ids) do
    local held = 0
    for k = 1, size do
      local state = states[k]
      reply[at + k] = state.held[id] and 1 or 0
      if state.held[id] then
        held = held + 1
        act(state, id, p)
      end
    end
    reply[at] = held == size and 2 or math.min(held, 1)
    at = at + 1 + size
  end
  return reply
end
local states = {}
for k, key in ipairs(KEYS) do
  states[k] = window.find(key, tonumber(ARGV[1 + k]))
  states[k].column = k
end
local reply = outcomes(states, function(state, id, p)
  local units = tonumber(ARGV[first + (p - 1) * stride + state.column])
  if not units or units == state.held[id] then return end
  window.charge(state, id, units)
  state.held[id] = units
  state.gone = state.gone or {}
  state.gone[#state.gone + 1] = ':' .. id
  window.take(state, id, units)
end)
for _, state in ipairs(states) do
  if state.gone then
    -- HDEL first: the server allows it when out of memory, and then the HSET that follows.
    redis.call('HDEL', state.key, unpack(state.gone))
    redis.call('HSET', state.key, 'n', state.used, unpack(state.new))
  end
end
return reply
