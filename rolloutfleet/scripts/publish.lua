-- publish: new weights are there: they get the run's next version, and every worker is to load them.
-- with: keys clock wake completed pace
-- flags: allow-oom
--
-- KEYS the run's keys (parts/keys.lua)
-- ARGV token (of this call), label, path, mode (retract | abort | drain | external), at_once (0: all workers), manifest
--
-- version   these weights are the policy. One of the last 16 tokens gets its version again, and nothing changes: a call
--           that is repeated after somebody else's would otherwise bring its old weights back as the newest
-- "no_run"  the run has no config; nothing changed
local token, label, path, mode, at_once, manifest = unpack(ARGV)
if redis.call('EXISTS', config) == 0 then
  return 'no_run'
end
local recent = redis.call('HGET', policy, 'recent') or ''
for version, known in string.gmatch(recent, '(%d+)=(%S+)') do
  if known == token then
    return tonumber(version)
  end
end

local version = redis.call('HINCRBY', policy, 'version', 1)
local calls = {}
for call in string.gmatch(version .. '=' .. token .. ' ' .. recent, '%S+') do
  calls[#calls + 1] = #calls < 16 and call .. ' ' or nil
end
redis.call('HSET', policy, 'label', label, 'path', path, 'mode', mode, 'at_once', at_once, 'manifest', manifest,
  'loaded', 0, 'published', server_ms(), 'recent', table.concat(calls))
-- Where the last weights lie, for whoever deletes those that nobody needs.
redis.call('HSET', policy, 'path:' .. version, path)
redis.call('HDEL', policy, 'path:' .. version - 64)
count_update()
return version
