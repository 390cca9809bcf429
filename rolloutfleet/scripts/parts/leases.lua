-- leases: what a lease counts, and its end. Needs keys.

-- What a lease adds to `outstanding`: a lease counts at least one sample until its group is completed.
local function weight(left)
  return math.max(1, tonumber(left))
end

local function unlease(id, group)
  redis.call('ZREM', leases, id)
  redis.call('HDEL', grants, group.token)
  if redis.call('DECRBY', outstanding, weight(group.left)) <= 0 then
    redis.call('DEL', outstanding)
  end
  redis.call('HDEL', group_key(id), 'token', 'hard', 'new')
end
