-- The permits: from `first` on, every `stride` arguments are an id and its figures.
local ids = {}
for at = first, #ARGV, stride do ids[#ids + 1] = ARGV[at] end
if #ids < 1 or #ids > 1000 or (#ARGV - first + 1) % stride ~= 0 then
  return redis.error_reply(string.format(
    'ERR pyslot: expected 1 to 1000 permits of %d arguments each, got %d arguments',
    stride, math.max(0, #ARGV - first + 1)))
end
