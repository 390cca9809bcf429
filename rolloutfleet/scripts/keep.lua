-- keep: store what samples have before they are finished, so that the group's next holder goes on from there.
-- with: keys
--
-- KEYS the run's keys (parts/keys.lua)
-- ARGV token, then index, tokens so far (binary), and so on, two for each sample
--
-- for each sample, in order
-- "kept"   what was there of this index is replaced; a sample that is finished, or no index of the group, is left out
-- "large"  it is longer than partial_bytes; nothing changed
-- "lost"   the lease was not the caller's any more; nothing changed
-- Refused where memory is full: only time is lost by that.
local id = redis.call('HGET', grants, ARGV[1])
local born, n = unpack(id and redis.call('HMGET', group_key(id), 'born', 'n') or {})
local most = tonumber(cfg.partial_bytes) or math.huge

local function keep(index, tokens)
  if not id then
    return 'lost'
  elseif #tokens > most then
    return 'large'
  end
  if tonumber(index) < tonumber(n) and redis.call('HEXISTS', samples_key(id, born), index) == 0 then
    redis.call('HSET', partial_key(id, born), index, tokens)
  end
  return 'kept'
end

local words = {}
for i = 2, #ARGV, 2 do
  words[i / 2] = keep(ARGV[i], ARGV[i + 1])
end
return words
