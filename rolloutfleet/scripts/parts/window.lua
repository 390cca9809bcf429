-- window: the twin of window.py: may a claim succeed, and if not, why. Needs keys, wake, completed, pace.
local function window()
  local samples = cfg.sample_concurrency
  if samples == 'auto' then
    samples = redis.call('HGET', state, 'slots') or 0
  end
  local over, by = tonumber(cfg.overcommit), 1000 * cfg.n
  if not over then -- auto
    over = cfg.refill == 'sample' and cfg.sample_concurrency == 'auto' and 1250 or 1000
  end
  return math.floor((over * samples + by - 1) / by)
end

local function active()
  if cfg.refill == 'group' then
    return redis.call('ZCARD', leases)
  end
  return math.ceil(tonumber(redis.call('GET', outstanding) or 0) / cfg.n)
end

-- Why no group may be claimed now, whichever it is; nil: the window is open. `behind`: see pace_left.
local function closed(behind)
  local places = window()
  if cfg.paused == '1' then
    return 'paused'
  elseif places == 0 then
    return 'no_capacity'
  elseif waiting() >= places then
    return 'completed_full'
  elseif pace_left(behind) <= 0 then
    return 'pace'
  elseif active() >= places then
    return 'active_full'
  elseif cfg.refill == 'sample' and redis.call('ZCARD', leases) >= cfg.open_cap * places then
    return 'active_full'
  end
end

-- In sample refill a group with more samples than a place has room for waits, unless it would be the only one.
local function fits(left)
  local busy = tonumber(redis.call('GET', outstanding) or 0)
  return cfg.refill == 'group' or busy == 0 or busy + math.max(1, left) <= cfg.n * window()
end

-- Adds the time since the last claim (5 s at most) to the reason that held then, and notes the reason that holds now.
local function account(reason, now)
  local last = redis.call('HMGET', state, 'gate', 'gate_at')
  if last[1] then
    count('behind:' .. last[1], math.max(0, math.min(5000, now - last[2])))
  end
  redis.call('HSET', state, 'gate', reason, 'gate_at', now)
  if last[1] ~= reason then
    redis.call('HSET', state, 'gate_since', now)
  end
end

-- After a step that may have made room. Most samples that end, and most takes, open nothing: a hint for each of them
-- would send an idle worker to claim in vain.
local function wake_if_open()
  if cfg.n and not closed() then
    wake_one()
  end
end
