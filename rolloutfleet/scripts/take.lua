-- take: hand completed groups to a consumer. A step of its own, since taking is what opens the gate.
-- with: keys wake completed pace window
-- flags: allow-oom
--
-- KEYS the run's keys (parts/keys.lua)
-- ARGV consumer, most entries, position (">": new ones; an entry's id: the consumer's own pending ones after it)
--
-- {last, entry, ...}  entry = {entry id, {name, value, ...}}; they are pending at the consumer until it acks them.
-- last: id of the newest entry in the stream, or "0-0". Who got nothing waits for one beyond it (XREAD BLOCK).
local consumer, most, position = ARGV[1], ARGV[2], ARGV[3]
local newest = redis.call('XREVRANGE', completed, '+', '-', 'COUNT', 1)[1]
local last = newest and newest[1] or '0-0'

local function take()
  return redis.pcall('XREADGROUP', 'GROUP', 'trainer', consumer, 'COUNT', most, 'STREAMS', completed, position)
end
local found = take()
if found and found.err then
  -- No consumer group: the run is new, or somebody deleted the stream. From 0: nothing is passed over.
  redis.call('XGROUP', 'CREATE', completed, 'trainer', '0', 'MKSTREAM')
  found = take()
end

local reply = {last}
for _, entry in ipairs(found and found[1][2] or {}) do
  local id, fields = entry[1], entry[2]
  if not fields then
    redis.call('XACK', completed, 'trainer', id) -- deleted while it was pending
  else
    reply[#reply + 1] = entry
  end
end
if position == '>' and #reply > 1 then
  wake_if_open()
end
return reply
