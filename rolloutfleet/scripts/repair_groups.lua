-- repair_groups: groups that are in no list, without lease, without entry in the stream: back in line, same born.
-- with: keys wake
-- flags: allow-oom
--
-- KEYS the run's keys (parts/keys.lua)
-- ARGV "look" | "mend", ids. look: which ids are neither leased, in `again`, in the stream nor in `trained` (most of
--      them wait in `prompts`, which the caller reads meanwhile); mend: the few that the caller did not find there
--
-- look: the ids that may be nowhere.  mend: the ids that were put first in `again`
local mode, suspects = ARGV[1], {}

local function is_nowhere(id)
  local group = redis.call('HMGET', group_key(id), 'born', 'entry')
  if not group[1] or redis.call('ZSCORE', leases, id) or redis.call('ZSCORE', again, id) then
    return false
  elseif group[2] and #redis.call('XRANGE', completed, group[2], group[2]) == 1 then
    return false
  end
  return not redis.call('ZSCORE', trained, id)
end

for i = 2, #ARGV do
  local id = ARGV[i]
  if is_nowhere(id) and (mode == 'look' or not redis.call('LPOS', prompts, '@' .. id)) then
    suspects[#suspects + 1] = id
    if mode == 'mend' then
      redis.call('HDEL', group_key(id), 'entry', 'by', 'token')
      redis.call('ZADD', again, 0, id)
      wake_one()
    end
  end
end
return suspects
