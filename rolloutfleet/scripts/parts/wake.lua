-- wake: leave a hint that a claim may succeed now. The list holds at most one token: who pops it claims or pushes it back.
local function wake_one()
  if redis.call('LLEN', wake) == 0 then
    redis.call('LPUSH', wake, '1')
  end
end
