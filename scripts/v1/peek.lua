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
local ids, permits, fields, column = {}, 0, {'s', 'n'}
local reply, after = {}, string.format('(%.0f', now)
for k = 1, #KEYS do
  local key = KEYS[k]
  if ARGV[1 + k] == 's' then
    local ends = redis.call('ZRANGEBYSCORE', key, after, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
    reply[2 * k - 1] = redis.call('ZCOUNT', key, after, '+inf')
    reply[2 * k] = ends and ends - now or 0
  else
    local span = tonumber(ARGV[1 + k])
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
    reply[2 * k - 1], reply[2 * k] = used, reset
  end
end
return reply
