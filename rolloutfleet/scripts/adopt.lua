-- adopt: entries that were delivered to a consumer which somebody deleted are pending nowhere: take them over.
-- with: keys wake
-- flags: allow-oom
--
-- KEYS the run's keys (parts/keys.lua)
-- ARGV consumer, position (look beyond this entry id; "-": from the start), most entries to look at
--
-- {position to go on from, or "" at the end; number of entries adopted}
-- An adopted entry is pending at the consumer. If there is no consumer group (the stream was deleted), it is made.
local consumer, position, most = ARGV[1], ARGV[2], tonumber(ARGV[3])
local groups = redis.pcall('XINFO', 'GROUPS', completed)
local delivered
for _, group in ipairs(groups.err and {} or groups) do
  if group[2] == 'trainer' then
    delivered = group[8]
  end
end
if not delivered then
  redis.call('XGROUP', 'CREATE', completed, 'trainer', '0', 'MKSTREAM')
  return {'', 0}
end

local from = position == '-' and '-' or '(' .. position
local entries = redis.call('XRANGE', completed, from, delivered, 'COUNT', most)
local adopted = 0
for _, entry in ipairs(entries) do
  local id = entry[1]
  if #redis.call('XPENDING', completed, 'trainer', id, id, 1) == 0 then
    redis.call('XCLAIM', completed, 'trainer', consumer, 0, id, 'FORCE', 'JUSTID')
    adopted = adopted + 1
  end
end
if adopted > 0 then
  wake_one()
end
return {#entries == most and entries[most][1] or '', adopted}
