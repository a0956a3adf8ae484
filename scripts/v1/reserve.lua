-- Built from src/reserve.lua; v1 of the contract in scripts/README.md.
-- reserve: charge units to each window, or to none.
-- KEYS  windows
-- ARGV  now ('': the server's clock); mode ('': charge, 'dry': only say, 'rejoin': charge even above the limit); for
--       each key its limit ('600', '~600': never refuse, only report, '-': no limit) and its length in ms; then for
--       each permit its id and its cost for each window
-- Reply for each permit: 1 granted, 2 granted before, 0 refused; then for each key four numbers: verdict (0 charged or
--       free, 1 full, 2 never fits, 3 above the limit but not refused, 4 held before), units used, ms until it rolls, 0
-- Time is the server's, in whole milliseconds. A caller may drive it (ARGV[1]): then keys get an hour more to live,
-- for the server goes on expiring them by its own clock.
local HOUR, MINUTE = 3600000, 60000
local now, spare = tonumber(ARGV[1]), HOUR
if not now then
  local time = redis.call('TIME')
  now, spare = time[1] * 1000 + math.floor(time[2] / 1000), 0
end
local first, stride = 3 + 2 * #KEYS, 1 + #KEYS
-- The permits: from `first` on, every `stride` arguments are an id and its figures.
local ids = {}
for at = first, #ARGV, stride do ids[#ids + 1] = ARGV[at] end
if #ids < 1 or #ids > 1000 or (#ARGV - first + 1) % stride ~= 0 then
  return redis.error_reply(string.format(
    'ERR pyslot: expected 1 to 1000 permits of %d arguments each, got %d arguments',
    stride, math.max(0, #ARGV - first + 1)))
end
-- A window of units: a hash of its start `s`, the units used `n`, and `:<id>` for the charge of each open permit.
local window = {}
local BEYOND = 9007199254740992
local fields = {'s', 'n'}
for p = 1, #ids do fields[p + 2] = ':' .. ids[p] end

-- A window lives from its first charge until `per` has passed. A start in the future (the clock was set back) counts
-- as now.
function window.find(key, per)
  local got = redis.call('HMGET', key, unpack(fields))
  local start = tonumber(got[1])
  local w = {kind = window, key = key, start = start, span = per, used = 0, reset = 0, held = {}, new = {}}
  if start and now < start + per then
    w.live, w.used, w.reset = true, tonumber(got[2]) or 0, math.min(start + per - now, per)
    w.moved = start > now
    for p = 1, #ids do w.held[ids[p]] = tonumber(got[p + 2]) end
  end
  return w
end

-- What admission must know, read before anything is written.
function window.open(key, per)
  local w = window.find(key, per)
  if not w.live then w.stale = w.start or redis.call('EXISTS', key) == 1 end
  return w
end

function window.take(w, id, cost)
  local new = w.new
  new[#new + 1] = ':' .. id
  new[#new + 1] = cost
end

function window.write(w)
  local key = w.key
  if w.live then
    if w.moved then redis.call('HSET', key, 's', now) end
    if w.new[1] then redis.call('HSET', key, 'n', w.used, unpack(w.new)) end
    return 0
  end
  if w.stale then
    -- HSET first: the server refuses it when out of memory, and would no longer once UNLINK had written.
    redis.call('HSET', key, 's', now)
    redis.call('UNLINK', key)
  end
  redis.call('HSET', key, 's', now, 'n', w.used, unpack(w.new))
  redis.call('PEXPIRE', key, w.span + MINUTE + spare)
  return 0
end

-- Replaces a permit's charge. A count that went beyond what is exact stays there until the window rolls.
function window.charge(w, id, units)
  if units ~= w.held[id] and w.used < BEYOND then
    w.used, w.changed = math.max(0, math.min(w.used - w.held[id] + units, BEYOND)), true
  end
end

function window.remove(w)
  if w.gone then redis.call('HDEL', w.key, unpack(w.gone)) end
  if w.changed then redis.call('HSET', w.key, 'n', w.used) end
end
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
local states = {}
for k, key in ipairs(KEYS) do
  states[k] = limit(window.open(key, tonumber(ARGV[2 + 2 * k])), ARGV[1 + 2 * k])
  states[k].column = k
end
return decide(states)
