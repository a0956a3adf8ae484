-- finish: end permits in any mix of gauges and windows, first setting windows to the units really used.
-- KEYS  gauges and windows
-- ARGV  now ('': the server's clock); for each key the window's length in ms, or 's' for a gauge; then for each permit
--       its id and for each window, in the order of KEYS, the units really used, or '-' to let the charge stand
-- Reply for each permit: 2 if every key held it, 1 if some did, 0 if none; then for each key 1 if it held it, else 0
--@ clock
local first, stride = 2 + keys, 1
for k = 1, keys do
  if ARGV[1 + k] ~= 's' then stride = stride + 1 end
end
--@ permits
--@ window fields
local states, column, length, span = {false}, 0
for k = 1, keys do
  local key, state = KEYS[k]
  if ARGV[1 + k] == 's' then
    --@ slots find
  else
    if ARGV[1 + k] ~= length then -- mostly they are the same, and to read a number is not cheap
      length = ARGV[1 + k]
      span = tonumber(length)
    end
    column = column + 1
    --@ window find
    state = {span, used, 0, held, false, 0, column, false, false}
  end
  states[k] = state
end
--@ outcomes
-- ZREM and HDEL come first for each key: the server allows them when out of memory, and then what follows.
for k = 1, keys do
  local state = states[k]
  if state[COLUMN] then
    --@ window remove
  else
    --@ slots remove
  end
end
return reply

--# act
if state[COLUMN] then
  local units = tonumber(ARGV[figures + state[COLUMN]])
  if units then
    --@ window charge
  end
end
state[GONE] = true
if same then state[HELD][who] = false end
