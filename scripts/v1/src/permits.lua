-- The permits: from `first` on, every `stride` arguments are an id and its figures.
local permits, ids, skip = (#ARGV - first + 1) / stride, ARGV, first - 1
if permits < 1 or permits > 1000 or permits % 1 ~= 0 then
  return redis.error_reply(string.format(
    'ERR pyslot: expected 1 to 1000 permits of %d arguments each, got %d arguments',
    stride, math.max(0, #ARGV - first + 1)))
end
-- The id of permit p is ids[skip + p].
if stride > 1 then
  ids, skip = {ARGV[first]}, 0
  for p = 2, permits do ids[p] = ARGV[first + (p - 1) * stride] end
end
-- What is known of key k is in states[k]; of a single key it is in `state` itself, and stays there.
local state, states = nil, keys > 1 and {}
-- Of several permits same[p] is the first with the id of permit p: what is known of an id is kept in its place. One
-- permit by itself needs no tables of what is known, nor does one key: to make one costs about as much as a command.
local same = false
if permits > 1 then
  local seen = {}
  same = {}
  for p = 1, permits do
    local id = ids[skip + p]
    if not seen[id] then seen[id] = p end
    same[p] = seen[id]
  end
end
