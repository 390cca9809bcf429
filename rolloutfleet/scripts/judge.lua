-- judge: a trainer is about to train on completed groups: which of them are fresh enough for its weights?
-- with: keys clock wake groups anew
-- flags: allow-oom
--
-- KEYS the run's keys (parts/keys.lua)
-- ARGV weight version of the trainer, entry ids
--
-- for each entry, in order; a version that is no number is as old as can be
-- "ok"        it is at most max_staleness versions behind, or the run sets no bound
-- "stale"     it is further behind, and to be trained on all the same: `stale` is pace, or it was recycled
--             recycle_limit times and `recycle_then` is deliver
-- "recycled"  it is made again: the samples are gone, it is newly born, and last in `prompts` (`stale` is recycle)
-- "dropped"   it is over, not trained on (`stale` is drop)
-- "dead"      it was recycled recycle_limit times, and is a dead letter (`recycle_then` is dead)
-- "ahead"     newer weights than the trainer's made it; nothing changed
-- "gone"      the entry is not in the stream: acked, recycled or dropped before
-- ok and stale change only what ack counts the group under. How far behind it is, is counted up to 20.
local version = tonumber(ARGV[1])
local most = tonumber(cfg.max_staleness)

local function field(fields, name)
  for i = 1, #fields, 2 do
    if fields[i] == name then
      return fields[i + 1]
    end
  end
  return ''
end

local function versions(fields)
  local oldest, newest = string.match(field(fields, 'versions'), '^%[%s*(%-?%d+)%s*,%s*(%-?%d+)%s*%]$')
  return tonumber(oldest or -1), tonumber(newest or -1)
end

-- The group's length as lengths.py counts it: the longest sample, in steps that double twice an octave.
local function length_step(fields)
  local longest = 0
  for length in string.gmatch(field(fields, 'lengths'), '%d+') do
    longest = math.max(longest, tonumber(length))
  end
  return longest == 0 and 0 or math.min(44, math.ceil(2 * math.log(longest + 1) / math.log(2) - 1e-9))
end

-- What becomes of a group that is too far behind.
local function refuse(entry, id, group, behind, fields)
  local fate = cfg.stale
  if fate == 'recycle' and is_at_limit(group) then
    fate = cfg.recycle_then
  end
  if (fate ~= 'recycle' and fate ~= 'drop' and fate ~= 'dead') or not remove(entry) then
    return 'stale'
  elseif fate == 'recycle' then
    make_anew(id, group)
    redis.call('RPUSH', prompts, '@' .. id)
    count('recycled_staleness:' .. behind)
    return 'recycled'
  elseif fate == 'dead' then
    bury(id, group, 'too stale, each time that it was made', group.attempts)
    count('lost:stale:' .. length_step(fields))
  else
    forget(id, group.born)
    count('dropped')
    count('dropped:stale')
  end
  count('dropped_staleness:' .. behind)
  return fate == 'drop' and 'dropped' or 'dead'
end

local function judge(entry)
  local found = redis.call('XRANGE', completed, entry, entry)[1]
  if not found then
    return 'gone'
  end
  local id, oldest, newest = found[2][2], versions(found[2])
  local key = group_key(id)
  if redis.call('HGET', key, 'born') ~= found[2][4] then
    remove(entry)
    return 'gone'
  elseif math.max(oldest, newest) > version then
    return 'ahead'
  end
  local behind = oldest >= 0 and math.min(version - oldest, 20) or 'unknown'
  redis.call('HSET', key, 'staleness', behind)
  if not most or (oldest >= 0 and version - oldest <= most) then
    return 'ok'
  end
  return refuse(entry, id, read_group(id), behind, found[2])
end

local words = {}
for i = 2, #ARGV do
  words[i - 1] = judge(ARGV[i])
end
return words
