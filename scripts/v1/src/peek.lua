-- peek: how full gauges and windows are. Read-only.
-- KEYS  gauges and windows
-- ARGV  now ('': the server's clock); for each key the window's length in ms, or 's' for a gauge
-- Reply for each key: slots or units in use, ms until the first lease ends or the window rolls (0: nothing to wait for)
--@ clock
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
    --@ window find
    reply[2 * k - 1], reply[2 * k] = live and tonumber(used) or 0, live and math.min(start + span - now, span) or 0
  end
end
return reply
