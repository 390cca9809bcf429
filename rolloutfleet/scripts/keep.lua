-- keep: store what samples have before they are finished, so that the group's next holder goes on from there.
-- with: keys
--
-- KEYS the run's keys (parts/keys.lua)
-- ARGV token, then index, tokens so far (binary), and so on, two for each sample
--
-- "kept"  what was there of these indices is replaced; a sample that is finished, or no index of the group, is left out
-- "lost"  the lease was not the caller's any more; nothing changed
-- Refused where memory is full: only time is lost by that.
local token = ARGV[1]
local id = redis.call('HGET', grants, token)
if not id then
  return 'lost'
end

local born, n = unpack(redis.call('HMGET', group_key(id), 'born', 'n'))
for i = 2, #ARGV, 2 do
  local index = ARGV[i]
  if tonumber(index) < tonumber(n) and redis.call('HEXISTS', samples_key(id, born), index) == 0 then
    redis.call('HSET', partial_key(id, born), index, ARGV[i + 1])
  end
end
return 'kept'
