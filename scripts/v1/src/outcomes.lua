-- What becomes of permits already held: `act` is called for each key that holds one, permit by permit.
-- Reply for each permit: 2 if every key held it, 1 if some did, 0 if none; then for each key 1 if it held it, else 0.
local function outcomes(states, act)
  local reply, at, size = {}, 1, #states
  for p, id in ipairs(ids) do
    local held = 0
    for k = 1, size do
      local state = states[k]
      reply[at + k] = state.held[id] and 1 or 0
      if state.held[id] then
        held = held + 1
        act(state, id, p)
      end
    end
    reply[at] = held == size and 2 or math.min(held, 1)
    at = at + 1 + size
  end
  return reply
end
