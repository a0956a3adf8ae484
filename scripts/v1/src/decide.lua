-- Admission: each permit in turn gets all of its limits or none. Nothing has been written yet.
-- `states` holds one state per key, in order; ARGV holds the permits' costs at the windows' columns.
local TAKES, FULL, NEVER, OBSERVED, HELD = 0, 1, 2, 3, 4
local mode = ARGV[2]

local function limit(state, text)
  state.observed = string.sub(text, 1, 1) == '~'
  if state.observed then text = string.sub(text, 2) end
  state.limit = text == '-' and math.huge or tonumber(text)
  return state
end

local function judge(state, cost)
  if state.used + cost <= state.limit then return TAKES end
  if state.observed or mode == 'rejoin' then return OBSERVED end
  if cost > state.limit then return NEVER end
  return FULL
end

local function decide(states)
  local reply, at, size = {}, 0, #states
  for p, id in ipairs(ids) do
    local status, costs, verdicts = 2, {}, {}
    for k = 1, size do
      local state, verdict = states[k], HELD
      if not state.held[id] then
        costs[k] = 1
        if state.column then costs[k] = tonumber(ARGV[first + (p - 1) * stride + state.column]) end
        verdict = judge(state, costs[k])
        if verdict == FULL or verdict == NEVER then status = 0 elseif status == 2 then status = 1 end
      end
      verdicts[k] = verdict
    end
    reply[at + 1] = status
    for k = 1, size do
      local state, verdict = states[k], verdicts[k]
      if status == 1 and verdict ~= HELD then
        state.used = math.min(state.used + costs[k], 9007199254740992) -- 2^53: beyond what is exact
        if state.span < state.reset or state.reset == 0 then state.reset = state.span end
        state.held[id] = true
        state.kind.take(state, id, costs[k])
      end
      local record = at + 4 * k - 2
      reply[record], reply[record + 1], reply[record + 2], reply[record + 3] = verdict, state.used, state.reset, 0
    end
    at = at + 1 + 4 * size
  end
  if mode ~= 'dry' then
    for k = 1, size do
      local state = states[k]
      if state.new[1] or state.moved then reply[4 * k + 1] = state.kind.write(state) end
    end
  end
  return reply
end
