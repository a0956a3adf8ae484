-- reset: forget all that gauges and windows hold.
-- KEYS  gauges and windows
-- ARGV  none
-- Reply the number of keys there were
return {redis.call('UNLINK', unpack(KEYS))}
