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
