-- drop: the group filter refused the group. It is over, counted by its reason, and its place is free.
-- with: keys clock wake groups leases
-- flags: allow-oom
--
-- KEYS the run's keys (parts/keys.lua)
-- ARGV token, reason
--
-- "ok"    the group is done
-- "lost"  the lease was not the caller's any more; nothing changed
local token, reason = ARGV[1], ARGV[2]
local id = redis.call('HGET', grants, token)
if not id then
  return 'lost'
end

local group = read_group(id)
unlease(id, group)
forget(id, group.born)
count('dropped')
-- Reasons are the user's words: a bound keeps a reason with a number in it from filling the hash.
count('dropped:' .. (redis.call('HLEN', stats) < 256 and reason or 'other'))
wake_one()
return 'ok'
