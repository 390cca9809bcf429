-- pace: how many groups may be claimed before what they bring is too old. The twin of window.Pace. Needs keys, wake,
-- completed.
-- The books are `updates` and `trained` of state, less what they were when the books were opened (`..._from`).

local function books()
  local kept = redis.call('HMGET', state, 'updates', 'updates_from', 'trained', 'trained_from')
  return (kept[1] or 0) - (kept[2] or 0), (kept[3] or 0) - (kept[4] or 0)
end

-- Groups that may be claimed beside those that are active, wait or are taken; without a bound on staleness, any number.
-- `behind`: versions that the claimer's engine is behind: what it begins is so much older when its turn comes.
local function pace_left(behind)
  local most, each = tonumber(cfg.max_staleness), tonumber(cfg.groups_per_update or 0)
  if not most or each == 0 then
    return math.huge
  end
  local updates, trained = books()
  local under_way = redis.call('ZCARD', leases) + math.max(redis.call('XLEN', completed), taken())
  return (most + updates - (behind or 0) + 1) * each - (trained + under_way)
end

-- A trainer that begins answers for no group that was trained on before: one that died between ack and publish would
-- close the gate for good, and the updates that another run of it made would open it wide.
local function open_books()
  local kept = redis.call('HMGET', state, 'updates', 'trained')
  redis.call('HSET', state, 'updates_from', kept[1] or 0, 'trained_from', kept[2] or 0)
  wake_one()
end

-- The trainer has published: one update more. Squares the books: an update that trained on fewer groups (the first
-- weights, or the same ones again) opens nothing; groups that no update answers for do not close the gate for good.
local function count_update()
  redis.call('HINCRBY', state, 'updates', 1)
  local each = tonumber(cfg.groups_per_update or 0)
  local updates, trained = books()
  local least = updates * each - taken() -- the trainer may publish before it acks
  local most = (updates + 1) * each -- it may have acked the next update's groups already
  redis.call('HINCRBY', state, 'trained_from', trained - math.min(math.max(trained, least), most))
  wake_one()
end
