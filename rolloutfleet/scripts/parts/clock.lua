-- clock: server time, and the run's own clock in which all deadlines are written.
local instant

-- Seconds and microseconds of the server's clock, looked at once: a step happens at one instant.
local function server_time()
  instant = instant or redis.call('TIME')
  return instant[1], instant[2]
end

local function server_ms()
  local seconds, micros = server_time()
  return seconds * 1000 + math.floor(micros / 1000)
end

-- The run's clock stands still while nobody calls for longer than half a lease (the broker was away), and does not
-- follow the server's when that jumps back. Otherwise one restart of the broker would expire every healthy lease.
local function run_clock(lease_ms)
  local now = server_ms()
  local kept = redis.call('HMGET', state, 'seen_at', 'shift')
  local shift = tonumber(kept[2] or 0)
  local gap = now - tonumber(kept[1] or now)
  if gap < 0 then
    shift = shift + gap
  else
    shift = shift + math.max(0, gap - math.floor(lease_ms / 2))
  end
  redis.call('HSET', state, 'seen_at', now, 'shift', shift)
  return now - shift
end
