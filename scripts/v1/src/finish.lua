-- finish: end permits in any mix of gauges and windows, first setting windows to the units really used.
-- KEYS  gauges and windows
-- ARGV  now ('': the server's clock); for each key the window's length in ms, or 's' for a gauge; then for each permit
--       its id and for each window, in the order of KEYS, the units really used, or '-' to let the charge stand
-- Reply for each permit: 2 if every key held it, 1 if some did, 0 if none; then for each key 1 if it held it, else 0
--@ clock
--@ outcomes places
local COLUMN, USED, CHANGED = 3, 4, 5
local first, stride = 2 + keys, 1
for k = 1, keys do
  if ARGV[1 + k] ~= 's' then stride = stride + 1 end
end
--@ permits
--@ window fields
local column, length, span = 0
for k = 1, keys do
  local key = KEYS[k]
  if ARGV[1 + k] == 's' then
    --@ slots find
    state = {held, gone, false}
  else
    if ARGV[1 + k] ~= length then -- mostly they are the same, and to read a number is not cheap
      length = ARGV[1 + k]
      span = length + 0
    end
    column = column + 1
    --@ window find
    state = {held, false, column, used, false}
  end
  if states then states[k] = state end
end
--@ outcomes all
-- ZREM and HDEL come first for each key: the server allows them when out of memory, and then what follows.
for k = 1, keys do
  if states then state = states[k] end
  if state[COLUMN] then
    --@ window remove
  else
    --@ slots remove
  end
end
return reply

--# act
if state[COLUMN] then
  local text = ARGV[figures + state[COLUMN]]
  if text ~= '-' then
    local units = text + 0
    --@ window charge
  end
end
state[GONE] = true
if same then state[HELD][who] = false end
