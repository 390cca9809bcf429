-- ack: a trainer has trained on completed groups: they are over.
-- with: keys clock wake groups
-- flags: allow-oom
--
-- KEYS the run's keys (parts/keys.lua)
-- ARGV entry ids
--
-- for each entry, in order
-- "ok"    the group is done, its samples are freed
-- "gone"  the entry is not in the stream: acked or recycled before; nothing changed
local cfg = read(config)

local function ack(entry)
  local found = redis.call('XRANGE', completed, entry, entry)[1]
  if not found or redis.call('XDEL', completed, entry) == 0 then
    return 'gone'
  end
  if redis.call('XACK', completed, 'trainer', entry) == 0 then
    wake_one() -- it was counted as waiting
  end
  local id, born = found[2][2], found[2][4]
  if redis.call('HGET', group_key(id), 'born') == born then
    local staleness = redis.call('HGET', group_key(id), 'staleness') -- as judge found it
    if staleness then
      count('trained_staleness:' .. staleness)
    end
    forget(id, born, cfg)
    count('acked')
    redis.call('HINCRBY', state, 'trained', 1)
  else
    wake_one() -- it was under way for `pace`, and is not trained
  end
  return 'ok'
end

local words = {}
for i, entry in ipairs(ARGV) do
  words[i] = ack(entry)
end
return words
