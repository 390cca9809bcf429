-- configure: set fields of the run's config. Makes the run if it is new.
-- with: keys clock wake groups completed pace
-- flags: allow-oom
--
-- KEYS the run's keys (parts/keys.lua)
-- ARGV mode ("set" | "default": keep what is there), then field, value, ...
--
-- number of fields that were not there before. A larger window, a resume, a new n may let a claim succeed: wakes.
local set = ARGV[1] == 'set' and 'HSET' or 'HSETNX'
if redis.call('EXISTS', completed) == 0 then
  redis.call('XGROUP', 'CREATE', completed, 'trainer', '0', 'MKSTREAM')
end
epoch()
local before = redis.call('HMGET', config, 'max_staleness', 'groups_per_update')
local changed = 0
for i = 2, #ARGV, 2 do
  changed = changed + redis.call(set, config, ARGV[i], ARGV[i + 1])
end
local now = redis.call('HMGET', config, 'max_staleness', 'groups_per_update')
if now[1] ~= before[1] or now[2] ~= before[2] then
  open_books() -- what was counted under another bound is no measure for this one
end
wake_one()
return changed
