-- peek: how full gauges and windows are. Read-only.
-- KEYS  gauges and windows
-- ARGV  now ('': the server's clock); for each key the window's length in ms, or 's' for a gauge
-- Reply for each key: slots or units in use, ms until the first lease ends or the window rolls (0: nothing to wait for)
--@ clock
local ids = {}
--@ window
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
