-- repair_samples: free the samples of incarnations that are over (a caller died in the middle of a put).
-- with: keys
-- flags: allow-oom
--
-- KEYS the run's keys (parts/keys.lua)
-- ARGV id, born, and so on, two for each key of samples (finished or partial) that was found
--
-- number of keys freed
local freed = 0
for i = 1, #ARGV, 2 do
  local id, born = ARGV[i], ARGV[i + 1]
  if redis.call('HGET', group_key(id), 'born') ~= born or redis.call('ZSCORE', trained, id) then
    freed = freed + free_samples(id, born)
  end
end
return freed
