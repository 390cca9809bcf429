-- submit: store prompt groups and put them in line; a ledger may be submitted again as often as one likes.
-- with: keys clock wake groups
--
-- KEYS the run's keys (parts/keys.lua)
-- ARGV id, n (0: the run's), text (JSON as it came), and so on, three for each group
--
-- {"no_run"}  the run has no config; nothing changed
-- else, for each id in order
-- "queued"    the group is stored, and last in `prompts`
-- "known"     the group is somewhere in the run already; nothing changed
-- "done"      the group was acked, dropped or dead within the horizon of `done`; nothing changed
local default = redis.call('HGET', config, 'n')
if not default then
  return {'no_run'}
end

local function submit(id, n, text)
  if redis.call('ZSCORE', done, id) then
    return 'done'
  elseif redis.call('EXISTS', group_key(id)) == 1 then
    return 'known'
  end
  store(id, new_born(), n == '0' and default or n, text)
  redis.call('RPUSH', prompts, '@' .. id)
  count('submitted')
  return 'queued'
end

local words = {}
for i = 1, #ARGV, 3 do
  words[#words + 1] = submit(ARGV[i], ARGV[i + 1], ARGV[i + 2])
end
wake_one()
return words
