-- Built from src/peek.lua; v1 of the contract in scripts/README.md.
-- peek: how full gauges and windows are. Read-only.
-- KEYS  gauges and windows
-- ARGV  now ('': the server's clock); for each key the window's length in ms, or 's' for a gauge
-- Reply for each key: slots or units in use, ms until the first lease ends or the window rolls (0: nothing to wait for)
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
local permits, same, fields = 0, false, {'s', 'n'}
local reply, after = {}, string.format('(%.0f', now)
for k = 1, keys do
  local key = KEYS[k]
  if ARGV[1 + k] == 's' then
    local ends = call('ZRANGEBYSCORE', key, after, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
    reply[2 * k - 1] = call('ZCOUNT', key, after, '+inf')
    reply[2 * k] = ends and ends - now or 0
  else
    local span = tonumber(ARGV[1 + k])
    -- A window lives from its first charge until its span has passed. What it holds begins with the permits' charges.
    local held = call('HMGET', key, unpack(fields))
    local start, used = tonumber(held[permits + 1]), held[permits + 2]
    local live = start and now < start + span
    if not live then held = false elseif not same then held = held[1] end
    reply[2 * k - 1], reply[2 * k] = live and tonumber(used) or 0, live and math.min(start + span - now, span) or 0
  end
end
return reply
