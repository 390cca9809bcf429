-- attempts: what becomes of a group whose lease ended, and it did not. Needs keys, clock, wake, groups, leases.

-- Doubles with each attempt up to a bound; the last half is jitter, drawn from the microseconds.
local function delay(attempts)
  local longest = math.min(cfg.retry_cap_ms, cfg.retry_ms * 2 ^ math.max(0, attempts - 1))
  return math.floor(longest / 2 + longest / 2 * (select(2, server_time()) % 1000) / 1000)
end

-- Why the last attempt failed, and when and why each did, a line each; the oldest go when it becomes long.
local function note_failure(id, reason)
  local before = redis.call('HGET', group_key(id), 'failed') or ''
  local lines = before .. server_ms() .. ' ' .. string.gsub(string.sub(reason, 1, 200), '\n', ' ') .. '\n'
  while #lines > 2048 do
    lines = string.gsub(lines, '^[^\n]*\n', '')
  end
  redis.call('HSET', group_key(id), 'reason', reason, 'failed', lines)
end

-- An attempt that stored a sample, or that ended by no fault of the group, is not counted (section 5 of the design).
local function fail(id, group, reason, counts, now)
  local attempts = tonumber(group.attempts)
  unlease(id, group)
  if not counts or group.new == '1' then
    attempts = attempts - 1
  end
  if attempts >= tonumber(cfg.max_attempts) then
    bury(id, group, reason, attempts)
    return 'dead'
  end
  redis.call('HSET', group_key(id), 'attempts', attempts)
  if counts then
    note_failure(id, reason)
  end
  redis.call('ZADD', again, counts and now + delay(attempts) or 0, id)
  return 'ok'
end

local function reap(most, now)
  local expired = redis.call('ZRANGEBYSCORE', leases, '-inf', now, 'LIMIT', 0, most)
  for _, id in ipairs(expired) do
    fail(id, read_group(id), 'lease expired', true, now)
    count('reaped')
  end
  if #expired > 0 then
    wake_one()
  end
  return #expired
end
