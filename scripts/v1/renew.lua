-- Built from src/renew.lua; v1 of the contract in scripts/README.md.
-- renew: let slots that are still held live on for a whole lease from now. Never shortens one, never revives one.
-- KEYS  gauges
-- ARGV  now ('': the server's clock); for each key the lease in ms; then the permit ids
-- Reply for each permit: 2 if every key held it, 1 if some did, 0 if none; then for each key 1 if it held it, else 0
-- Time is the server's, in whole milliseconds. A caller may drive it (ARGV[1]): then keys get an hour more to live,
-- for the server goes on expiring them by its own clock.
local HOUR, MINUTE = 3600000, 60000
local now, spare = tonumber(ARGV[1]), HOUR
if not now then
  local time = redis.call('TIME')
  now, spare = time[1] * 1000 + math.floor(time[2] / 1000), 0
end
local first, stride = 2 + #KEYS, 1
-- The permits: from `first` on, every `stride` arguments are an id and its figures.
local ids = {}
for at = first, #ARGV, stride do ids[#ids + 1] = ARGV[at] end
if #ids < 1 or #ids > 1000 or (#ARGV - first + 1) % stride ~= 0 then
  return redis.error_reply(string.format(
    'ERR pyslot: expected 1 to 1000 permits of %d arguments each, got %d arguments',
    stride, math.max(0, #ARGV - first + 1)))
end
-- A gauge of slots: a sorted set of permit ids, each scored with the time its lease ends.
local slots = {}

-- What admission must know, read before anything is written.
function slots.open(key, lease)
  local gauge = {kind = slots, key = key, span = lease, used = 0, reset = 0, lapsed = 0, held = {}, new = {}}
  gauge.used = redis.call('ZCARD', key)
  if gauge.used == 0 then return gauge end
  gauge.there = true
  local ends = tonumber(redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2])
  if ends <= now then
    gauge.lapsed = redis.call('ZCOUNT', key, '-inf', now)
    gauge.used = gauge.used - gauge.lapsed
    ends = tonumber(redis.call('ZRANGE', key, gauge.lapsed, gauge.lapsed, 'WITHSCORES')[2])
    gauge.ended = {}
  end
  if ends then gauge.reset = ends - now end
  for p, score in ipairs(redis.call('ZMSCORE', key, unpack(ids))) do
    if score then
      if tonumber(score) > now then gauge.held[ids[p]] = true else gauge.ended[ids[p]] = true end
    end
  end
  return gauge
end

function slots.take(gauge, id)
  local new = gauge.new
  new[#new + 1] = now + gauge.span
  new[#new + 1] = id
  if gauge.ended and gauge.ended[id] then gauge.lapsed = gauge.lapsed - 1 end
end

-- Adds before it prunes: out of memory must strike before anything has changed. Returns how many leases it found that
-- had ended unreleased and dropped; a thousand at most, the next call drops the next.
function slots.write(gauge)
  redis.call('ZADD', gauge.key, unpack(gauge.new))
  local dropped = math.min(gauge.lapsed, 1000)
  if dropped > 0 then redis.call('ZREMRANGEBYRANK', gauge.key, 0, dropped - 1) end
  -- The key must outlive the slot by an hour; in steps of another hour this costs a write once an hour.
  local least = gauge.span + HOUR + spare
  if not gauge.there or redis.call('PTTL', gauge.key) < least then redis.call('PEXPIRE', gauge.key, least + HOUR) end
  return dropped
end

-- What the end of a permit must know. A slot whose lease has ended is no longer held, but still to be removed.
function slots.find(key)
  local gauge = {kind = slots, key = key, held = {}, gone = {}}
  for p, score in ipairs(redis.call('ZMSCORE', key, unpack(ids))) do
    if score then
      if tonumber(score) > now then gauge.held[ids[p]] = tonumber(score) end
      gauge.gone[#gauge.gone + 1] = ids[p]
    end
  end
  return gauge
end

function slots.remove(gauge)
  if #gauge.gone > 0 then redis.call('ZREM', gauge.key, unpack(gauge.gone)) end
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
  local state = slots.find(key)
  state.span, state.new, state.ttl = tonumber(ARGV[1 + k]), {}, redis.call('PTTL', key)
  states[k] = state
end
local reply = outcomes(states, function(state, id)
  state.new[#state.new + 1] = math.max(state.held[id], now + state.span)
  state.new[#state.new + 1] = id
end)
for _, state in ipairs(states) do
  if state.new[1] then
    -- PEXPIRE first: the server allows it when out of memory, and then the ZADD that follows.
    redis.call('PEXPIRE', state.key, math.max(state.ttl, state.span + 2 * HOUR + spare))
    redis.call('ZADD', state.key, unpack(state.new))
  end
end
return reply
