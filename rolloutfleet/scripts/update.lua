-- update: a worker's turn to load the published weights into its engine, and how that went.
-- with: keys clock
-- flags: allow-oom
--
-- KEYS the run's keys (parts/keys.lua)
-- ARGV word, worker, version, engine, serves ("1": its engine serves older weights meanwhile)
--
-- "begin"   "go"     the turn is the worker's for the time of a lease; each further call prolongs it
--           "wait"   at_once others have a turn, or another worker loads into the same engine; nothing changed
--           "newer"  this version is the policy no more; nothing changed
--           "gone"   the worker was evicted; nothing changed
-- "loaded"  "ok"     the turn is over
-- "failed"  "held"   nobody has loaded this version yet: the turn is kept, so that a rolling update stops where it fails
--           "ok"     the turn is over
-- "left"    "ok"     the turn is over: the engine is away, or there are newer weights
-- "no_run"  no config; nothing changed
local word, worker, version, engine, serves = unpack(ARGV)
local lease_ms = redis.call('HGET', config, 'lease_ms')
if not lease_ms then
  return 'no_run'
end
local now, member = run_clock(lease_ms), worker .. ' ' .. version .. ' ' .. engine
-- A worker that died in its turn blocks nobody: turns end by themselves.
redis.call('ZREMRANGEBYSCORE', updating, '-inf', now)
local mine, is_policy = redis.call('ZSCORE', updating, member), redis.call('HGET', policy, 'version') == version

local function blocked()
  local others = 0
  for _, other in ipairs(redis.call('ZRANGE', updating, 0, -1)) do
    local holder, its_engine = string.match(other, '^(%S+) %S+ (.*)$')
    if holder == worker then
      redis.call('ZREM', updating, other) -- its turn at an older version is over
    elseif its_engine == engine then
      return true
    else
      others = others + 1
    end
  end
  local at_once = tonumber(redis.call('HGET', policy, 'at_once'))
  return serves == '1' and at_once > 0 and others >= at_once
end

if word == 'begin' then
  if not mine and not is_policy then
    return 'newer'
  elseif redis.call('ZSCORE', barred, worker) then
    return 'gone' -- a turn that it took now would outlive it
  elseif not mine and blocked() then
    return 'wait'
  end
  redis.call('ZADD', updating, now + lease_ms, member)
  return 'go'
elseif word == 'failed' and mine and is_policy and redis.call('HGET', policy, 'loaded') == '0' then
  redis.call('ZADD', updating, now + lease_ms, member)
  return 'held'
end
if redis.call('ZREM', updating, member) == 1 and word == 'loaded' and is_policy then
  redis.call('HINCRBY', policy, 'loaded', 1)
end
return 'ok'
