-- completed: how many groups of the stream a trainer holds, and how many wait for one. Needs keys.
local held

-- Completed groups that a trainer holds. Looked at once: no step takes or acks after it has asked.
local function taken()
  if held then
    return held
  end
  held = 0
  local groups = redis.pcall('XINFO', 'GROUPS', completed)
  for _, group in ipairs(groups.err and {} or groups) do
    if group[2] == 'trainer' then
      held = group[6]
    end
  end
  return held
end

-- Completed groups that no trainer has taken. Entries that a trainer holds do not count: one that needs a batch larger
-- than the window before it acks would wait for ever.
local function waiting()
  return math.max(0, redis.call('XLEN', completed) - taken())
end
