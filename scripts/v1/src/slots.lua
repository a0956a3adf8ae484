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
