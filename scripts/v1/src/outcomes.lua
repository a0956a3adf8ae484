-- The end of permits, and what else becomes of those already held.

--# places
-- What is known of a key is a list with these places: it takes a third of the memory of one with names.
local HELD, GONE = 1, 2

--# all
-- What becomes of permits already held: for each key that holds one, permit by permit, the script's own part `act`.
-- Reply for each permit: 2 if every key held it, 1 if some did, 0 if none; then for each key 1 if it held it, else 0.
local figures, reply, at = first, {0, 0}, 1
for p = 1, permits do
  local who, all = same and same[p], 0
  reply[at] = 0
  for k = 1, keys do
    if states then state = states[k] end
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
  at, figures = at + 1 + keys, figures + stride
end
