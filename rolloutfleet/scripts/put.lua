-- put: after HSETNX of a finished sample in the same MULTI: count it, or throw it away if its group is over.
-- with: keys wake leases completed pace window
-- flags: allow-oom
--
-- KEYS the run's keys (parts/keys.lua)
-- ARGV id, born, and, only where memory is full and HSETNX was refused: index, sample (binary)
--
-- "stored"  the sample is kept, whoever holds the group now
-- "had"     another one of this index was first; read that one before scoring
-- "gone"    the incarnation is over (acked, dropped, dead, recycled); nothing of it is kept
local id, born, index, sample = unpack(ARGV)
local key, samples = group_key(id), samples_key(id, born)
local group = read(key, 'born', 'n', 'left', 'token')
if group.born ~= born or redis.call('ZSCORE', trained, id) then
  free_samples(id, born)
  return 'gone'
end
local is_new = not index or redis.call('HSETNX', samples, index, sample) == 1
for _, begun in ipairs(redis.call('HKEYS', partial_key(id, born))) do
  if redis.call('HEXISTS', samples, begun) == 1 then
    redis.call('HDEL', partial_key(id, born), begun) -- the finished sample takes the place of its beginning
  end
end

-- Counted with HLEN, never by decrement: a call that is executed twice changes nothing.
local left = group.n - stored(id, born)
if left == tonumber(group.left) then
  return 'had'
end
redis.call('HSET', key, 'left', left, 'new', group.token and 1 or 0)
count('samples', group.left - left)
if group.token then
  redis.call('INCRBY', outstanding, weight(left) - weight(group.left))
  if cfg.refill == 'sample' then
    wake_if_open() -- in group refill a sample frees no place
  end
end
return is_new and 'stored' or 'had'
