-- claim: lease up to k groups to a worker, as far as the window has room for them. Whole fleet, one step.
-- with: keys clock wake groups leases attempts completed pace window queue
-- flags: allow-oom
--
-- KEYS the run's keys (parts/keys.lua)
-- ARGV worker, base (token of this claim; the grants are base/0 .. base/k-1), k (0: only say why), weight version that
--      its engine serves (-1: unknown; empty: somebody else updates it)
--
-- {reason, grant, ...} with grant = {token, id, born, n, attempt, text, indices of the stored samples, indices of
-- samples of which there are only the first tokens, engines that died under it}
-- and at the end, to one worker of those that find no more prompts, the ms after which a delayed group is due
-- "open"      and grants: the caller holds them until the lease's deadline. A base that was granted before gets the
--             same grants again, extended. Otherwise nothing is granted, because of
-- "no_run" no config; "gone" the worker is barred; "draining" it was told to drain; "paused", "no_capacity",
-- "completed_full", "pace", "active_full", "no_prompts" the gate (parts/window.lua); "busy" k is 0;
-- "again"     too many entries could not be claimed: ask again at once
-- "old_weights" newer ones are published, and with them the pace is open, which it is not with the caller's: the hint is
--             passed on, so load them first, and wait for no hint meanwhile
local worker, base, k, served = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
look_up('n', 'lease_ms', 'group_ms', 'sample_concurrency', 'overcommit', 'refill', 'paused', 'max_staleness',
  'groups_per_update')
if not cfg.n then
  return {'no_run'}
elseif redis.call('ZSCORE', barred, worker) then
  wake_one()
  return {'gone'}
end
local now = run_clock(cfg.lease_ms)

-- Whether something of the incarnation may be stored: it was leased before, or a put came though the broker has crashed
-- and knows of no lease.
local function is_begun(group)
  return group.claimed or group.left ~= group.n
end

local function answer(token, id, group)
  redis.call('ZADD', leases, math.min(now + cfg.lease_ms, group.hard), id)
  local text = redis.call('HGET', group_key(id), 'text')
  local indices = is_begun(group) and redis.call('HKEYS', samples_key(id, group.born)) or {}
  local begun = is_begun(group) and redis.call('HKEYS', partial_key(id, group.born)) or {}
  return {token, id, group.born, group.n, group.attempts, text, indices, begun, group.deaths or 0}
end

local function grant(token, found)
  take_out(found)
  local id, group = found.id, found.group or read_group(found.id)
  local left = is_begun(group) and group.n - stored(id, group.born) or group.n
  group.attempts, group.hard = group.attempts + 1, now + cfg.group_ms
  redis.call('HSET', grants, token, id)
  redis.call('INCRBY', outstanding, weight(left))
  redis.call('HSET', group_key(id), 'token', token, 'left', left, 'attempts', group.attempts, 'new', 0,
    'hard', group.hard, 'claimed', server_ms())
  return answer(token, id, group)
end

-- An update makes room for groups of the new weights: what is begun with the old ones is older by the difference.
local function versions_behind()
  if not served or not tonumber(cfg.max_staleness) then
    return 0
  end
  local published = redis.call('HMGET', policy, 'version', 'mode')
  return published[1] and published[2] ~= 'external' and math.max(0, published[1] - served) or 0
end

local reply = {'open'}
for i = 0, k - 1 do
  local id = redis.call('HGET', grants, base .. '/' .. i)
  if id then
    reply[#reply + 1] = answer(base .. '/' .. i, id, read_group(id))
  end
end
if #reply > 1 then
  return reply
elseif redis.call('ZSCORE', draining, worker) then
  wake_one()
  return {'draining'}
end

reap(8, now)
local behind, reason, found = versions_behind(), nil, nil
repeat
  reason, found = closed(behind), nil
  if not reason then
    found, reason = first(now, 64)
  end
  if found and not fits(found.left) then
    reason = 'active_full'
  elseif found and #reply > k then
    reason = 'busy'
  elseif found then
    reply[#reply + 1] = grant(base .. '/' .. #reply - 1, found)
  end
until reason

local open = reason == 'busy' or reason == 'again'
local is_old = reason == 'pace' and not closed()
if open or is_old then
  wake_one()
end
if #reply > 1 then
  count('claimed', #reply - 1)
  note_most('most_active', active())
elseif reason ~= 'open' then
  reply[1] = is_old and 'old_weights' or reason
end
if reason == 'no_prompts' and k > 0 then
  reply[#reply + 1] = due_in(worker, now)
end
account(open and (k == 0 and 'busy' or 'open') or reason, server_ms())
return reply
