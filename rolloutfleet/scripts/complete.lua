-- complete: all samples of a group are stored and scored: hand it to the trainers, and free its place.
-- with: keys clock wake leases completed
-- flags: allow-oom
--
-- KEYS the run's keys (parts/keys.lua)
-- ARGV token, id, born, then fields of the stream entry (name, value, ...): rewards, versions, lengths, worker, ...
--
-- "ok"       the group is in `completed`, once; the lease is over. The same token gets the same answer again
-- "missing"  fewer than n samples are stored; nothing changed
-- "lost"     the lease is not the caller's any more; nothing changed: the next holder only scores
-- "gone"     this incarnation is over; nothing changed
local token, id, born = ARGV[1], ARGV[2], ARGV[3]
local key = group_key(id)
local group = read(key, 'born', 'n', 'left', 'attempts', 'recycled', 'token', 'entry', 'by', 'submitted', 'claimed')
if group.born ~= born then
  return 'gone'
elseif group.entry and group.by == token then
  return 'ok'
elseif redis.call('HGET', grants, token) ~= id then
  return 'lost'
elseif stored(id, born) ~= tonumber(group.n) then
  return 'missing'
end

unlease(id, group)
redis.call('UNLINK', partial_key(id, born)) -- one whose put never ran may still stand beside its finished sample
local entry = redis.call('XADD', completed, '*', 'id', id, 'born', born, 'n', group.n, 'attempts', group.attempts,
  'recycled', group.recycled, 'submitted', group.submitted, 'claimed', group.claimed, 'completed', server_ms(),
  unpack(ARGV, 4))
redis.call('HSET', key, 'entry', entry, 'by', token)
count('completed')
note_most('most_waiting', waiting())
wake_one()
return 'ok'
