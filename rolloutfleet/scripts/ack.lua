-- ack: a trainer has trained on completed groups: they are over.
-- with: keys clock wake groups
-- flags: allow-oom
--
-- KEYS the run's keys (parts/keys.lua)
-- ARGV entry ids; before them, optionally, "@<consumer>/<session>": of another session than the consumer's last `begin`,
--      nothing is counted as trained, for who sent it died, and will publish no update
--
-- for each entry, in order
-- "ok"    the group is done, its samples are freed
-- "gone"  the entry is not in the stream: acked or recycled before; nothing changed
local consumer, session = string.match(ARGV[1] or '', '^@(.*)/([^/]*)$')
local is_counted = not consumer or redis.call('HGET', state, 'session:' .. consumer) == session

local function ack(entry)
  local found = redis.call('XRANGE', completed, entry, entry)[1]
  if not found or redis.call('XDEL', completed, entry) == 0 then
    return 'gone'
  end
  if redis.call('XACK', completed, 'trainer', entry) == 0 then
    wake_one() -- it was counted as waiting
  end
  local id, born, is_trained = found[2][2], found[2][4], false
  local group = read(group_key(id), 'born', 'staleness')
  if born and group.born == born then -- an entry that no worker wrote has none
    if group.staleness then -- as judge found it
      count('trained_staleness:' .. group.staleness)
    end
    forget(id, born)
    count('acked')
    is_trained = is_counted
  end
  if is_trained then
    redis.call('HINCRBY', state, 'trained', 1)
  else
    wake_one() -- it was under way for `pace`, and is not trained
  end
  return 'ok'
end

local words = {}
for i = consumer and 2 or 1, #ARGV do
  words[#words + 1] = ack(ARGV[i])
end
return words
