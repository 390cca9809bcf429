-- touch: a consumer still works on what it took: entries that it touches are not handed to another.
-- with: keys
-- flags: allow-oom
--
-- KEYS the run's keys (parts/keys.lua)
-- ARGV consumer, entry ids
--
-- the entries that are not the consumer's any more; every other one has been idle for 0 ms
local consumer, lost = ARGV[1], {}
for i = 2, #ARGV do
  local entry = ARGV[i]
  local pending = redis.pcall('XPENDING', completed, 'trainer', entry, entry, 1)
  if pending.err or not pending[1] or pending[1][2] ~= consumer then
    lost[#lost + 1] = entry
  else
    redis.call('XCLAIM', completed, 'trainer', consumer, 0, entry, 'JUSTID')
  end
end
return lost
