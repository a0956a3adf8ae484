-- Built from src/peek.lua; v1 of the contract in scripts/README.md.
-- peek: how full gauges and windows are. Read-only.
-- KEYS  gauges and windows
-- ARGV  now ('': the server's clock); for each key the window's length in ms, or 's' for a gauge
-- Reply for each key: slots or units in use, ms until the first lease ends or the window rolls (0: nothing to wait for)
-- Time is the server's, in whole milliseconds. A caller may drive it (ARGV[1]): then keys get an hour more to live,
-- for the server goes on expiring them by its own clock.
local HOUR, MINUTE = 3600000, 60000
local now, spare = tonumber(ARGV[1]), HOUR
if not now then
  local time = redis.call('TIME')
  now, spare = time[1] * 1000 + math.floor(time[2] / 1000), 0
end
local ids = {}
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
local reply, after = {}, string.format('(%.0f', now)
for k, key in ipairs(KEYS) do
  if ARGV[1 + k] == 's' then
    local ends = redis.call('ZRANGEBYSCORE', key, after, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
    reply[2 * k - 1] = redis.call('ZCOUNT', key, after, '+inf')
    reply[2 * k] = ends and ends - now or 0
  else
    local w = window.find(key, tonumber(ARGV[1 + k]))
    reply[2 * k - 1], reply[2 * k] = w.used, w.reset
  end
end
return reply
