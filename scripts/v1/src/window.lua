-- A window of units: a hash of its start `s`, the units used `n`, and `:<id>` for the charge of each open permit.

--# places
local LIVE, COLUMN, MINUTE = 7, 9, 60000

--# fields
local BEYOND = 9007199254740992 -- 2^53: from here on numbers are no longer exact
local fields
if stride > 1 then
  fields = {':' .. ids[1]}
  for p = 2, permits do fields[p] = ':' .. ids[p] end
  fields[permits + 1], fields[permits + 2] = 's', 'n'
end

--# find
-- A window lives from its first charge until its span has passed. What it holds begins with the permits' charges.
local held = call('HMGET', key, unpack(fields))
local start, used = tonumber(held[permits + 1]), held[permits + 2]
local live = start and now < start + span
if not live then held = false elseif not same then held = held[1] end

--# open
-- What admission must know, read before anything is written. A start in the future (the clock was set back)
-- counts as now.
--@ window find
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

--# take
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

--# write
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

--# charge
-- Replaces a permit's charge. A count that went beyond what is exact stays there until the window rolls.
local charged, used = tonumber(held) or 0, tonumber(state[USED]) or 0
if units ~= charged and used < BEYOND then
  used = used - charged + units
  if used < 0 then used = 0 elseif used > BEYOND then used = BEYOND end
  state[USED], state[CHANGED] = used, true
end

--# remove
if state[GONE] then
  if same then call('HDEL', KEYS[k], unpack(fields, 1, permits)) else call('HDEL', KEYS[k], fields[1]) end
end
if state[CHANGED] then call('HSET', KEYS[k], 'n', state[USED]) end
