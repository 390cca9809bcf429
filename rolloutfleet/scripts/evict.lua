-- evict: a worker process is gone for certain: free its leases and its turn to load weights now, and bar it for good.
-- with: keys clock wake groups leases attempts
-- flags: allow-oom
--
-- KEYS the run's keys (parts/keys.lua)
-- ARGV worker, counts (1: a failed attempt of its groups; 0: the cluster took the pod), reason
--
-- number of leases freed; the worker is barred for a day: it can't claim or load, and is answered "gone"
local worker, counts, reason = ARGV[1], ARGV[2] == '1', ARGV[3]
if not cfg.n then
  return 0
end
local now, freed = run_clock(cfg.lease_ms), 0
local slots = tonumber(redis.call('HGET', capacity, worker) or 0)

redis.call('ZADD', barred, server_ms(), worker)
redis.call('ZREMRANGEBYSCORE', barred, '-inf', server_ms() - 86400000)
redis.call('HINCRBY', state, 'slots', -slots)
redis.call('HDEL', capacity, worker, worker .. ':facts')
redis.call('ZREM', workers, worker)
redis.call('ZREM', draining, worker)
for _, turn in ipairs(redis.call('ZRANGE', updating, 0, -1)) do
  if worker == string.match(turn, '^%S+') then
    redis.call('ZREM', updating, turn)
  end
end
for _, token in ipairs(redis.call('HKEYS', grants)) do
  if string.match(token, '^(.*)/%d+/%d+$') == worker then
    local id = redis.call('HGET', grants, token)
    fail(id, read_group(id), reason, counts, now)
    freed = freed + 1
  end
end
if slots > 0 or freed > 0 then -- otherwise it had said goodbye
  count('evicted')
end
wake_one()
return freed
