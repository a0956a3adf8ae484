-- What becomes of permits already held: for each key that holds one, permit by permit, the script's own part `act`.
-- Reply for each permit: 2 if every key held it, 1 if some did, 0 if none; then for each key 1 if it held it, else 0.
local reply, at = {0, 0}, 1
for p = 1, permits do
  local id, held = ids[skip + p], 0
  reply[at] = 0
  for k = 1, #KEYS do
    local state = states[k]
    if state.held and state.held[id] then
      reply[at + k] = 1
      held = held + 1
      --@ act
    else
      reply[at + k] = 0
    end
  end
  if held > 0 then reply[at] = held == #KEYS and 2 or 1 end
  at = at + 1 + #KEYS
end
