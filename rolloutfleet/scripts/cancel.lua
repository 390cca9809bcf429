-- cancel: a held group is hopeless: finished now, it would be older than max_staleness already. Back in line, from nothing.
-- with: keys clock wake groups leases anew
-- flags: allow-oom
--
-- KEYS the run's keys (parts/keys.lua)
-- ARGV token, oldest weight version that has made any of its tokens
--
-- "ok"     nobody holds the group; it is newly born, and first in `again`
-- "fresh"  the published version is not so far ahead, or the run does not want this (cancel_stale); nothing changed
-- "limit"  it was recycled recycle_limit times already: finish it; nothing changed
-- "lost"   the lease was not the caller's any more; nothing changed
local token, oldest = ARGV[1], tonumber(ARGV[2])
local id = redis.call('HGET', grants, token)
if not id then
  return 'lost'
end
local group = read_group(id)
local most = tonumber(cfg.max_staleness)
local published = tonumber(redis.call('HGET', policy, 'version') or 0)
if cfg.cancel_stale ~= '1' or not most or published - oldest <= most then
  return 'fresh'
elseif is_at_limit(group) then
  return 'limit'
end

unlease(id, group)
make_anew(id, group)
redis.call('ZADD', again, 0, id)
count('cancelled')
wake_one()
return 'ok'
