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
