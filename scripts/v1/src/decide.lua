-- Admission: each permit in turn gets all of its limits or none.

--# limit
local most = tonumber(text)
if not most then
  state.observed = string.sub(text, 1, 1) == '~'
  if state.observed then text = string.sub(text, 2) end
  most = text == '-' and math.huge or tonumber(text)
end
state.limit = most

--# all
-- Nothing has been written yet. `states` holds one state per key, in order; ARGV holds the permits' costs at the
-- windows' columns.
local TAKES, FULL, NEVER, OBSERVED, HELD = 0, 1, 2, 3, 4
local mode, BEYOND = ARGV[2], 9007199254740992 -- 2^53: from here on numbers are no longer exact
local reply, at = {0, 0, 0, 0, 0}, 1
for p = 1, permits do
  local id, status = ids[skip + p], 2
  reply[at] = 0
  for k = 1, #KEYS do
    local state, verdict, cost = states[k], HELD, 1
    if not (state.held and state.held[id]) then
      if state.column then cost = tonumber(ARGV[first + (p - 1) * stride + state.column]) end
      if state.used + cost <= state.limit then
        verdict = TAKES
      elseif state.observed or mode == 'rejoin' then
        verdict = OBSERVED
      else
        verdict = cost > state.limit and NEVER or FULL
        status = 0
      end
      if status == 2 then status = 1 end
    end
    local record = at + 4 * k
    reply[record - 3], reply[record - 2], reply[record - 1], reply[record] = verdict, cost, 0, 0
  end
  reply[at] = status
  for k = 1, #KEYS do
    local state, record = states[k], at + 4 * k
    if status == 1 and reply[record - 3] ~= HELD then
      local cost = reply[record - 2]
      state.used = math.min(state.used + cost, BEYOND)
      if state.span < state.reset or state.reset == 0 then state.reset = state.span end
      if p < permits then
        if state.held then state.held[id] = true else state.held = {[id] = true} end
      end
      if state.column then
        --@ window take
      else
        --@ slots take
      end
    end
    reply[record - 2], reply[record - 1] = state.used, state.reset
  end
  at = at + 1 + 4 * #KEYS
end
if mode ~= 'dry' then
  for k = 1, #KEYS do
    local state = states[k]
    if state.column then
      --@ window write
    else
      --@ slots write
    end
  end
end
return reply
