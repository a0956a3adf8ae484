-- Built from src/admit.lua; v1 of the contract in scripts/README.md.
-- admit: start permits in any mix of gauges and windows, each in all of them or in none.
-- KEYS  gauges and windows
-- ARGV  now ('': the server's clock); mode ('': take, 'dry': only say, 'rejoin': take even above the limit); for each
--       key its kind ('s' gauge, 'w' window), its limit ('5', '~5': never refuse, only report, '-': no limit) and its
--       lease or length in ms; then for each permit its id and for each window, in the order of KEYS, its cost
-- Reply for each permit: 1 granted, 2 granted before, 0 refused; then for each key four numbers: verdict (0 taken or
--       free, 1 full, 2 never fits, 3 above the limit but not refused, 4 held before), slots or units in use, ms until
--       the first lease ends or the window rolls, leases found ended unreleased and dropped
-- Time is the server's, in whole milliseconds. A caller may drive it (ARGV[1]): then keys get an hour more to live,
-- for the server goes on expiring them by its own clock.
local HOUR, MINUTE = 3600000, 60000
local now, spare = tonumber(ARGV[1]), HOUR
if not now then
  local time = redis.call('TIME')
  now, spare = time[1] * 1000 + math.floor(time[2] / 1000), 0
end
local first, stride, columns = 3 + 3 * #KEYS, 1, {}
for k = 1, #KEYS do
  if ARGV[3 * k] == 'w' then
    columns[k] = stride
    stride = stride + 1
  end
end
-- The permits: from `first` on, every `stride` arguments are an id and its figures.
local ids = {}
for at = first, #ARGV, stride do ids[#ids + 1] = ARGV[at] end
if #ids < 1 or #ids > 1000 or (#ARGV - first + 1) % stride ~= 0 then
  return redis.error_reply(string.format(
    'ERR pyslot: expected 1 to 1000 permits of %d arguments each, got %d arguments',
    stride, math.max(0, #ARGV - first + 1)))
end
-- A gauge of slots: a sorted set of permit ids, each scored with the time its lease ends.
local slots = {}

-- What admission must know, read before anything is written.
function slots.open(key, lease)
  local gauge = {kind = slots, key = key, span = lease, used = 0, reset = 0, lapsed = 0, held = {}, new = {}}
  gauge.used = redis.call('ZCARD', key)
  if gauge.used == 0 then return gauge end
  gauge.there = true
  local ends = tonumber(redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2])
  if ends <= now then
    gauge.lapsed = redis.call('ZCOUNT', key, '-inf', now)
    gauge.used = gauge.used - gauge.lapsed
    ends = tonumber(redis.call('ZRANGE', key, gauge.lapsed, gauge.lapsed, 'WITHSCORES')[2])
    gauge.ended = {}
  end
  if ends then gauge.reset = ends - now end
  for p, score in ipairs(redis.call('ZMSCORE', key, unpack(ids))) do
    if score then
      if tonumber(score) > now then gauge.held[ids[p]] = true else gauge.ended[ids[p]] = true end
    end
  end
  return gauge
end

function slots.take(gauge, id)
  local new = gauge.new
  new[#new + 1] = now + gauge.span
  new[#new + 1] = id
  if gauge.ended and gauge.ended[id] then gauge.lapsed = gauge.lapsed - 1 end
end

-- Adds before it prunes: out of memory must strike before anything has changed. Returns how many leases it found that
-- had ended unreleased and dropped; a thousand at most, the next call drops the next.
function slots.write(gauge)
  redis.call('ZADD', gauge.key, unpack(gauge.new))
  local dropped = math.min(gauge.lapsed, 1000)
  if dropped > 0 then redis.call('ZREMRANGEBYRANK', gauge.key, 0, dropped - 1) end
  -- The key must outlive the slot by an hour; in steps of another hour this costs a write once an hour.
  local least = gauge.span + HOUR + spare
  if not gauge.there or redis.call('PTTL', gauge.key) < least then redis.call('PEXPIRE', gauge.key, least + HOUR) end
  return dropped
end

-- What the end of a permit must know. A slot whose lease has ended is no longer held, but still to be removed.
function slots.find(key)
  local gauge = {kind = slots, key = key, held = {}, gone = {}}
  for p, score in ipairs(redis.call('ZMSCORE', key, unpack(ids))) do
    if score then
      if tonumber(score) > now then gauge.held[ids[p]] = tonumber(score) end
      gauge.gone[#gauge.gone + 1] = ids[p]
    end
  end
  return gauge
end

function slots.remove(gauge)
  if #gauge.gone > 0 then redis.call('ZREM', gauge.key, unpack(gauge.gone)) end
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
  local kind = columns[k] and window or slots
  states[k] = limit(kind.open(key, tonumber(ARGV[3 * k + 2])), ARGV[3 * k + 1])
  states[k].column = columns[k]
end
return decide(states)
