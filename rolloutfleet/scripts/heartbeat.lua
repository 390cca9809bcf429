-- heartbeat: one call per worker for all that it holds: extend, tell what was lost, report capacity.
-- with: keys clock wake groups leases attempts
-- flags: allow-oom
--
-- KEYS the run's keys (parts/keys.lua)
-- ARGV worker, settled (0: do not sweep), sample slots, facts (JSON, shown in status), busy slot ms and slot ms since
--      the last call, then the tokens it holds
--
-- {word, lost token, ...}  every other token is extended, though never past the hard deadline of its claim
-- word "ok"; "draining" the worker was told to drain; "gone" it was evicted: it holds nothing and must exit; "no_run"
-- Grants of this worker's claims with a serial below `settled` that it does not list are released `free`: their reply
-- never came. A claim that was answered after this call was made has a larger serial: a late call takes nothing away.
local worker, settled, slots, facts, busy_ms, slot_ms = unpack(ARGV, 1, 6)
if not cfg.n then
  return {'no_run'}
elseif redis.call('ZSCORE', barred, worker) then
  return {'gone'}
end
local now = run_clock(cfg.lease_ms)

local reply, listed = {redis.call('ZSCORE', draining, worker) and 'draining' or 'ok'}, {}
for i = 7, #ARGV do
  local token = ARGV[i]
  local id = redis.call('HGET', grants, token)
  if id then
    redis.call('ZADD', leases, math.min(now + cfg.lease_ms, redis.call('HGET', group_key(id), 'hard')), id)
  else
    reply[#reply + 1] = token
  end
  listed[token] = true
end

for _, token in ipairs(settled ~= '0' and redis.call('HKEYS', grants) or {}) do
  local holder, serial = string.match(token, '^(.*)/(%d+)/%d+$')
  if holder == worker and tonumber(serial) < tonumber(settled) and not listed[token] then
    local id = redis.call('HGET', grants, token)
    fail(id, read_group(id), 'the grant never arrived', false, now)
    wake_one()
  end
end

local function resize(name, to)
  local by = to - (redis.call('HGET', capacity, name) or 0)
  redis.call('HINCRBY', state, 'slots', by)
  if by > 0 then
    wake_one()
  end
end
resize(worker, slots)
redis.call('ZADD', workers, now + cfg.lease_ms, worker)
redis.call('HSET', capacity, worker, slots, worker .. ':facts', facts)
for _, name in ipairs(redis.call('ZRANGEBYSCORE', workers, '-inf', now, 'LIMIT', 0, 8)) do
  resize(name, 0)
  redis.call('ZREM', workers, name)
  redis.call('HDEL', capacity, name, name .. ':facts')
end
count('busy_ms', busy_ms)
count('slot_ms', slot_ms)
return reply
