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
  return redis.call('UNLINK', samples_key(id, born)) + redis.call('UNLINK', partial_key(id, born))
end

local function read(key)
  local flat, fields = redis.call('HGETALL', key), {}
  for i = 1, #flat, 2 do
    fields[flat[i]] = flat[i + 1]
  end
  return fields
end

local function count(what, by)
  redis.call('HINCRBY', stats, what, by or 1)
end
