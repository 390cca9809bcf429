-- requeue_dead: give dead letters another life, newly born with attempts 0.
-- with: keys clock wake groups
--
-- KEYS the run's keys (parts/keys.lua)
-- ARGV ids of entries in `dead`
--
-- for each entry, in order
-- "ok"     the group is first in `again`, the letter is gone
-- "known"  the id is in the run again meanwhile; only the letter is gone
-- "cut"    the letter holds only the beginning of an entry that never was a group; nothing changed
-- "gone"   there is no such letter
local function requeue(entry)
  local found = redis.call('XRANGE', dead, entry, entry)[1]
  if not found then
    return 'gone'
  end
  local letter = {}
  for i = 1, #found[2], 2 do
    letter[found[2][i]] = found[2][i + 1]
  end
  if letter.id == '' then
    return 'cut'
  end
  redis.call('XDEL', dead, entry)
  if redis.call('EXISTS', group_key(letter.id)) == 1 then
    return 'known'
  end
  redis.call('ZREM', done, letter.id)
  store(letter.id, new_born(), letter.n, letter.text)
  redis.call('ZADD', again, 0, letter.id)
  count('requeued')
  return 'ok'
end

local words = {}
for i, entry in ipairs(ARGV) do
  words[i] = requeue(entry)
end
wake_one()
return words
