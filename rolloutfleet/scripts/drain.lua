-- drain: tell workers to finish what they hold and claim no more, or take that back.
-- with: keys clock wake
-- flags: allow-oom
--
-- KEYS the run's keys (parts/keys.lua)
-- ARGV "drain" | "undrain", worker, ...
--
-- number of workers whose mark changed; a mark is kept a day: nobody takes back that of a process that has ended
redis.call('ZREMRANGEBYSCORE', draining, '-inf', server_ms() - 86400000)
local changed = 0
for i = 2, #ARGV do
  if ARGV[1] == 'drain' then
    changed = changed + redis.call('ZADD', draining, 'NX', server_ms(), ARGV[i])
  else
    changed = changed + redis.call('ZREM', draining, ARGV[i])
  end
end
wake_one()
return changed
