-- release: give a lease back, so that the group can be claimed again or is given up.
-- with: keys clock wake groups leases attempts
-- flags: allow-oom
--
-- KEYS the run's keys (parts/keys.lua)
-- ARGV token, kind (free | fail | reject | died | died_alone), reason
--
-- "ok"    nobody holds the group; `free`: it is first in `again`, and the attempt is not counted;
--         `fail`: it is in `again` after a delay that grows with its attempts;
--         `died`: as `free`, and one more engine died under it; two such deaths are counted at the most, since another
--         group may have done it, and of what runs alone from then on all (`died_alone`); none where a sample was stored
-- "dead"  it became a dead letter: `reject` at once, `fail` after max_attempts, `died_alone` after as many deaths
-- "lost"  the lease was not the caller's any more; nothing changed
local token, kind, reason = ARGV[1], ARGV[2], ARGV[3]
local id = redis.call('HGET', grants, token)
if not id then
  return 'lost'
end

local group = read_group(id)
count('released:' .. kind)
wake_one()
if string.sub(kind, 1, 4) == 'died' and group.new ~= '1' then
  local deaths, is_alone = tonumber(group.deaths or 0), kind == 'died_alone'
  deaths = is_alone and deaths + 1 or math.max(deaths, math.min(deaths + 1, 2))
  redis.call('HSET', group_key(id), 'deaths', deaths)
  if is_alone and deaths >= tonumber(cfg.max_attempts) then
    kind = 'reject'
  end
end
if kind == 'reject' then
  unlease(id, group)
  bury(id, group, reason, group.attempts)
  return 'dead'
end
return fail(id, group, reason, kind == 'fail', run_clock(cfg.lease_ms))
