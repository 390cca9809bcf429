-- keys: the names of a run's keys, and how to read a hash. Every step gets the same KEYS, in the order of keys.py.
local prompts, completed, again, leases, grants, outstanding, trained, done, dead, state, config, policy, workers,
  capacity, draining, barred, stats, wake, updating = unpack(KEYS)
local prefix = string.sub(state, 1, -6)

local function group_key(id)
  return prefix .. 'group:' .. id
end

local function samples_key(id, born)
  return prefix .. 'samples:' .. id .. ':' .. born
end

local function partial_key(id, born)
  return prefix .. 'partial:' .. id .. ':' .. born
end

-- Frees the samples of an incarnation, and the tokens of those that were never finished; how many keys there were.
local function free_samples(id, born)
  return redis.call('UNLINK', samples_key(id, born), partial_key(id, born))
end

-- How many samples of an incarnation are stored; the field `prompt` beside them is none.
local function stored(id, born)
  local key = samples_key(id, born)
  return redis.call('HLEN', key) - redis.call('HEXISTS', key, 'prompt')
end

-- Some fields of a hash, by name. No hash is read whole: a group's text can be megabytes, and of some 30 settings a step
-- needs a few.
local function read(key, ...)
  local fields = {}
  for i, value in ipairs(redis.call('HMGET', key, ...)) do
    fields[select(i, ...)] = value or nil
  end
  return fields
end

-- The run's settings, each read when it is first asked for; false: not set. A run that has no config has no `n`.
local cfg = setmetatable({}, {__index = function(known, name)
  known[name] = redis.call('HGET', config, name)
  return known[name]
end})

-- Reads in one call the settings that a step will ask for: each call from Lua costs more than the field that it reads.
local function look_up(...)
  for i, value in ipairs(redis.call('HMGET', config, ...)) do
    cfg[select(i, ...)] = value
  end
end

local function count(what, by)
  redis.call('HINCRBY', stats, what, by or 1)
end

local function note_most(what, value)
  if value > tonumber(redis.call('HGET', stats, what) or -1) then
    redis.call('HSET', stats, what, value)
  end
end
