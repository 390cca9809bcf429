-- repair_leases: rebuild what is derived: grants and outstanding from the leases, slots from the workers.
-- with: keys clock wake groups leases
-- flags: allow-oom
--
-- KEYS the run's keys (parts/keys.lua)
-- ARGV none
--
-- number of leases without a group or grant (taken away) and of grants without a lease (deleted);
-- afterwards outstanding is the sum over the leases, slots that over the workers. One pass over the leases, of which there are a few windows.
local mended, sum, alive = 0, 0, {}
for _, id in ipairs(redis.call('ZRANGE', leases, 0, -1)) do
  local key = group_key(id)
  local group = read_group(id)
  if group.token and redis.call('HGET', grants, group.token) == id then
    local left = group.n - stored(id, group.born)
    redis.call('HSET', key, 'left', left)
    sum = sum + weight(left)
    alive[group.token] = true
  else
    redis.call('ZREM', leases, id)
    if group.born then
      redis.call('HDEL', key, 'token', 'hard', 'new')
      redis.call('ZADD', again, 0, id)
    end
    mended = mended + 1
  end
end
for _, token in ipairs(redis.call('HKEYS', grants)) do
  if not alive[token] then
    redis.call('HDEL', grants, token)
    mended = mended + 1
  end
end
if sum > 0 then redis.call('SET', outstanding, sum) else redis.call('DEL', outstanding) end
local slots = 0
for _, offered in ipairs(redis.call('HVALS', capacity)) do
  slots = slots + (tonumber(offered) or 0) -- the facts beside them are no number
end
if slots ~= tonumber(redis.call('HGET', state, 'slots') or 0) then
  redis.call('HSET', state, 'slots', slots)
end
wake_one()
return mended
