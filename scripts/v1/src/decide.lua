-- Admission: each permit in turn gets all of its limits or none.

--# places
-- What is known of a key is a list with these places: it takes a third of the memory of one with names.
local HELD, SPAN, USED, RESET, LIMIT, NEW = 1, 2, 3, 4, 5, 6

--# limit
local most, observed = tonumber(text), false
if not most then
  observed = string.sub(text, 1, 1) == '~'
  if observed then text = string.sub(text, 2) end
  most = text == '-' and math.huge or text + 0
end

--# known
if observed then state.observed = true end
if states then states[k] = state end

--# all
-- Nothing has been written yet. ARGV holds the permits' costs at the
-- windows' columns.
local TAKES, FULL, NEVER, OBSERVED, BEFORE = 0, 1, 2, 3, 4
local mode, costs, reply, at = ARGV[2], first, {0, 0, 0, 0, 0}, 1
for p = 1, permits do
  local who, status, record = same and same[p], 2, at
  reply[at] = 0
  for k = 1, keys do
    if states then state = states[k] end
    local verdict, cost = BEFORE, 1
    local held = state[HELD]
    if held and same then held = held[who] end
    if not held then
      --@ cost
      if state[USED] + cost <= state[LIMIT] then
        verdict = TAKES
      elseif state.observed or mode == 'rejoin' then
        verdict = OBSERVED
      else
        verdict = cost > state[LIMIT] and NEVER or FULL
        status = 0
      end
      if status == 2 then status = 1 end
    end
    -- The cost stands where what is in use will, once all keys have been asked.
    reply[record + 1], reply[record + 2], reply[record + 3], reply[record + 4] = verdict, cost, 0, 0
    record = record + 4
  end
  reply[at], record = status, at
  for k = 1, keys do
    if states then state = states[k] end
    local used, reset = state[USED], state[RESET]
    if status == 1 and reply[record + 1] ~= BEFORE then
      local cost = reply[record + 2]
      used = used + cost
      if state[SPAN] < reset or reset == 0 then reset = state[SPAN] end
      if p < permits then
        if not state[HELD] then state[HELD] = {} end
        state[HELD][who] = true
      end
      --@ take
      state[USED], state[RESET] = used, reset
    end
    reply[record + 2], reply[record + 3] = used, reset
    record = record + 4
  end
  at, costs = record + 1, costs + stride
end
if mode ~= 'dry' then
  for k = 1, keys do
    if states then state = states[k] end
    --@ write
  end
end
return reply
