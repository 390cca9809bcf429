-- anew: what completed groups and held ones have in common that are not trained on. Needs keys, wake, groups.

-- The entry is over, whoever holds it; false: it was before.
local function remove(entry)
  if redis.call('XDEL', completed, entry) == 0 then
    return false
  end
  redis.call('XACK', completed, 'trainer', entry)
  wake_one()
  return true
end

local function is_at_limit(group)
  return tonumber(group.recycled) >= tonumber(cfg.recycle_limit)
end

-- Another incarnation of the group, from nothing. The caller puts it in line.
local function make_anew(id, group)
  local key = group_key(id)
  free_samples(id, group.born)
  redis.call('HDEL', key, 'entry', 'by', 'staleness', 'claimed')
  redis.call('HSET', key, 'born', new_born(), 'left', group.n, 'attempts', 0, 'deaths', 0, 'recycled', group.recycled + 1)
  count('recycled')
end
