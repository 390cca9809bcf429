-- release: give a lease back, so that the group can be claimed again or is given up.
-- with: keys clock wake groups leases
-- flags: allow-oom
--
-- KEYS the run's keys (parts/keys.lua)
-- ARGV token, kind (free | fail | reject), reason
--
-- "ok"    nobody holds the group; `free`: it is first in `again`, and the attempt is not counted;
--         `fail`: it is in `again` after a delay that grows with its attempts
-- "dead"  it became a dead letter: `reject` at once, `fail` after max_attempts
-- "lost"  the lease was not the caller's any more; nothing changed
local token, kind, reason = ARGV[1], ARGV[2], ARGV[3]
local id = redis.call('HGET', grants, token)
if not id then
  return 'lost'
end

local cfg, group = read(config), read(group_key(id))
count('released:' .. kind)
wake_one()
if kind == 'reject' then
  unlease(id, group)
  dead_letter(id, reason, group.attempts, group.n, group.text, cfg)
  forget(id, group.born, cfg)
  return 'dead'
end
return fail(id, group, reason, kind == 'fail', run_clock(cfg.lease_ms), cfg)
