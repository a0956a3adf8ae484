-- count: the slots in use. Read-only.
-- KEYS  gauges
-- ARGV  now ('': the server's clock)
-- Reply for each key the number of its slots in use
--@ clock
local reply = {}
for k, key in ipairs(KEYS) do reply[k] = call('ZCOUNT', key, string.format('(%.0f', now), '+inf') end
return reply
