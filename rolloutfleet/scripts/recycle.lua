-- recycle: a trainer found a completed group too old, or unsound: generate it again under the current policy.
-- with: keys clock wake groups anew
-- flags: allow-oom
--
-- KEYS the run's keys (parts/keys.lua)
-- ARGV entry id, reason ("": at the limit the caller decides; else the dead letter's reason)
--
-- "ok"     the samples are gone, the group is newly born with attempts 0, and last in `prompts`
-- "limit"  it was recycled recycle_limit times already, and no reason was given; nothing changed
-- "dead"   the same, with a reason: it is a dead letter
-- "gone"   the entry is not in the stream: acked or recycled before; nothing changed
local entry, reason = ARGV[1], ARGV[2]
local found = redis.call('XRANGE', completed, entry, entry)[1]
if not found then
  return 'gone'
end
local id, born = found[2][2], found[2][4]
local group = read_group(id)
local at_limit = group.born == born and is_at_limit(group)
if at_limit and reason == '' then
  return 'limit'
elseif not remove(entry) or group.born ~= born then
  return 'gone'
elseif at_limit then
  bury(id, group, reason, group.attempts)
  return 'dead'
end

make_anew(id, group)
redis.call('RPUSH', prompts, '@' .. id)
return 'ok'
