-- What becomes of permits already held: for each key that holds one, permit by permit, the script's own part `act`.
-- Reply for each permit: 2 if every key held it, 1 if some did, 0 if none; then for each key 1 if it held it, else 0.
local reply, at = {0, 0}, 1
for p = 1, permits do
  local who, figures, all = same and same[p] or 1, first + (p - 1) * stride, 0
  reply[at] = 0
  for k = 1, keys do
    local state = states[k]
    local held = state[HELD]
    if held and same then held = held[who] end
    if held then
      reply[at + k] = 1
      all = all + 1
      --@ act
    else
      reply[at + k] = 0
    end
  end
  if all > 0 then reply[at] = all == keys and 2 or 1 end
  at = at + 1 + keys
end
