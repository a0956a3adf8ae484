-- Admission: each permit in turn gets all of its limits or none.

--# limit
local most = tonumber(text)
if not most then
  state.observed = string.sub(text, 1, 1) == '~'
  if state.observed then text = string.sub(text, 2) end
  most = text == '-' and math.huge or tonumber(text)
end
state[LIMIT] = most

--# all
-- Nothing has been written yet. `states` holds one state per key, in order; ARGV holds the permits' costs at the
-- windows' columns.
local TAKES, FULL, NEVER, OBSERVED, HELD = 0, 1, 2, 3, 4
local mode, BEYOND = ARGV[2], 9007199254740992 -- 2^53: from here on numbers are no longer exact
local reply, at = {0, 0, 0, 0, 0}, 1
for p = 1, permits do
  local who, costs, status, record = same and same[p] or 1, first + (p - 1) * stride, 2, at
  reply[at] = 0
  for k = 1, keys do
    local state, verdict, cost = states[k], HELD, 1
    local held = state[HELD]
    if held and same then held = held[who] end
    if not held then
      if state[COLUMN] then cost = tonumber(ARGV[costs + state[COLUMN]]) end
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
    reply[record + 1], reply[record + 2], reply[record + 3], reply[record + 4] = verdict, cost, 0, 0
    record = record + 4
  end
  reply[at], record = status, at
  for k = 1, keys do
    local state = states[k]
    local used, reset = state[USED], state[RESET]
    if status == 1 and reply[record + 1] ~= HELD then
      local cost = reply[record + 2]
      used = used + cost
      if used > BEYOND then used = BEYOND end
      if state[SPAN] < reset or reset == 0 then reset = state[SPAN] end
      state[USED], state[RESET] = used, reset
      if p < permits then
        if not state[HELD] then state[HELD] = {} end
        state[HELD][who] = true
      end
      if state[COLUMN] then
        --@ window take
      else
        --@ slots take
      end
    end
    reply[record + 2], reply[record + 3] = used, reset
    record = record + 4
  end
  at = record + 1
end
if mode ~= 'dry' then
  for k = 1, keys do
    local state = states[k]
    if state[COLUMN] then
      --@ window write
    else
      --@ slots write
    end
  end
end
return reply
