-- groups: the life of group:<id> outside of a lease. Needs keys, clock.

local made

-- When the run was made: tells it from one of the same name that was deleted.
local function epoch()
  if not made then
    redis.call('HSETNX', state, 'epoch', table.concat({server_time()}, '.'))
    made = redis.call('HGET', state, 'epoch')
  end
  return made
end

-- Names an incarnation of a group.
local function new_born()
  return epoch() .. '-' .. server_ms() .. '-' .. redis.call('HINCRBY', state, 'born', 1)
end

local function store(id, born, n, text)
  redis.call('HSET', group_key(id), 'text', text, 'n', n, 'born', born, 'left', n, 'attempts', 0, 'recycled', 0,
    'submitted', server_ms())
end

-- What a step decides by.
local function read_group(id)
  return read(group_key(id), 'born', 'n', 'left', 'attempts', 'recycled', 'deaths', 'token', 'hard', 'new', 'claimed',
    'entry', 'by')
end

-- The group is over: acked, dropped or dead. `done` refuses a late duplicate, and is bounded by time and number.
local function forget(id, born)
  local now = server_ms()
  free_samples(id, born)
  redis.call('UNLINK', group_key(id))
  redis.call('ZADD', done, now, id)
  -- A few at a time: after a week's pause, or with a smaller done_number, a million are due at once.
  local old = redis.call('ZCOUNT', done, '-inf', now - cfg.done_ms)
  local due = math.min(100, math.max(old, redis.call('ZCARD', done) - cfg.done_number))
  if due > 0 then
    redis.call('ZREMRANGEBYRANK', done, 0, due - 1)
  end
end

local function dead_letter(id, reason, attempts, n, text)
  redis.call('XADD', dead, 'MAXLEN', '~', cfg.dead_number, '*', 'id', id, 'reason', reason, 'attempts', attempts,
    'n', n, 'text', text, 'at', server_ms())
  count('dead')
end

-- The group is given up: a dead letter, and over.
local function bury(id, group, reason, attempts)
  dead_letter(id, reason, attempts, group.n, redis.call('HGET', group_key(id), 'text'))
  forget(id, group.born)
end
