-- queue: the group that is next in line. Needs keys, clock, groups.

-- The forms of a character beyond ASCII, each replaced whole: bytes that are left belong to none.
local CHARACTERS = {'[\194-\223][\128-\191]', '\224[\160-\191][\128-\191]', '\237[\128-\159][\128-\191]',
  '[\225-\236\238\239][\128-\191][\128-\191]', '\240[\144-\191][\128-\191][\128-\191]',
  '[\241-\243][\128-\191][\128-\191][\128-\191]', '\244[\128-\143][\128-\191][\128-\191]'}

-- An id is text to everybody who reads it: one that is none would end each worker that claims it.
local function is_text(id)
  for _, character in ipairs(CHARACTERS) do
    id = string.gsub(id, character, '?')
  end
  return not string.find(id, '[\128-\255]')
end

-- Reads what any producer may have RPUSHed. The text is only looked at, never encoded again.
local function parse(text)
  if #text > tonumber(cfg.max_bytes) then
    return nil, 'longer than max_bytes = ' .. cfg.max_bytes .. ': shorten the prompt, or raise max_bytes'
  end
  local ok, value = pcall(cjson.decode, text)
  if not ok or type(value) ~= 'table' or string.sub(string.gsub(text, '^%s+', ''), 1, 1) ~= '{' then
    return nil, 'not a JSON object'
  end
  local id, n = value.id, value.n
  if id == cjson.null then id = nil end
  if n == cjson.null then n = nil end
  if id ~= nil and (type(id) ~= 'string' or id == '' or #id > 256) then
    return nil, 'id must be a string of 1 to 256 bytes'
  end
  if id ~= nil and not is_text(id) then
    return nil, 'id is not UTF-8'
  end
  if n ~= nil and (type(n) ~= 'number' or n < 1 or n > 4096 or n % 1 ~= 0) then
    return nil, 'n must be an integer from 1 to 4096'
  end
  return {id = id, n = n or tonumber(cfg.n), text = text}
end

local function claimable(id)
  local group = read_group(id)
  return group.left and not group.token and not group.entry and {id = id, left = tonumber(group.left), group = group}
end

-- What a raw entry is good for; nil when it is bad (a dead letter), done, or known already.
local function raw(text)
  local found, reason = parse(text)
  if not found then
    dead_letter('', reason, 0, 0, string.sub(text, 1, 1024))
  elseif found.id and (redis.call('ZSCORE', done, found.id) or redis.call('EXISTS', group_key(found.id)) == 1) then
    count('duplicates')
  else
    found.left = found.n
    return found
  end
end

-- Looks at the head of the line without taking it; passes over at most `most` entries that can't be claimed.
-- Groups of `again` come first, so that old groups don't starve.
local function first(now, most)
  for _ = 1, most do
    local id = redis.call('ZRANGEBYSCORE', again, '-inf', now, 'LIMIT', 0, 1)[1]
    local entry = not id and redis.call('LINDEX', prompts, 0)
    if not id and not entry then
      return nil, 'no_prompts'
    end
    local found
    if id or string.sub(entry, 1, 1) == '@' then
      found = claimable(id or string.sub(entry, 2))
    else
      found = raw(entry)
    end
    if found then
      found.again = id
      return found
    end
    if id then redis.call('ZREM', again, id) else redis.call('LPOP', prompts) end
  end
  return nil, 'again'
end

-- In how many ms the first group whose delay is not over may be claimed. nil: there is none, or another worker was told:
-- nobody hints at it, and one that wakes by itself is enough.
local function due_in(worker, now)
  local due = redis.call('ZRANGE', again, 0, 0, 'WITHSCORES')[2]
  local told = redis.call('HMGET', state, 'due', 'due_to')
  if due and (told[1] ~= due or told[2] == worker) then
    redis.call('HSET', state, 'due', due, 'due_to', worker)
    return math.max(1, due - now)
  end
end

-- Takes what `first` has shown out of the line, and stores it if it came raw.
local function take_out(found)
  if found.again then
    redis.call('ZREM', again, found.id)
    return
  end
  redis.call('LPOP', prompts)
  if found.text then
    local born = new_born()
    found.id = found.id or born
    store(found.id, born, found.n, found.text)
    count('submitted')
  end
end
