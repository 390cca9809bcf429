-- begin: a trainer begins to take: the books of `pace` are opened anew.
-- with: keys wake completed pace
-- flags: allow-oom
--
-- KEYS the run's keys (parts/keys.lua)
-- ARGV consumer, session (new for each life of it; its acks carry it)
--
-- "ok"  from here on updates and trained groups are counted for the gate; what either was before counts for nothing, and
--       nor does what an earlier life of this consumer acks late
redis.call('HSET', state, 'session:' .. ARGV[1], ARGV[2])
open_books()
return 'ok'
