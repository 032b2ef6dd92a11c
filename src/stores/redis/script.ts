import { withConstants } from "./script-constants.ts";

/**
 * The record machine of `src/core/record.ts` in Lua, applied to a batch of operations inside Redis. A differential test
 * plays the same random histories to both and compares every answer.
 *
 * KEYS[1]      the partition's fence: the highest that was ever given out there
 * ARGV[1]      JSON: the owners whose grants come back in the reply, as a list
 * ARGV[2]      the most claims that may wait for one key
 * ARGV[3]      the beginning of the partition's keys, up to and with their hash tag
 * ARGV[4]      the beginning of the channels that other owners listen to
 * ARGV[5]      the highest fence that this client has seen: what the server has lost of its own, it may get back from here
 * ARGV[6]      the number of this call
 * ARGV[7]      the operations, one after the other. Each is its verb, a digit; three numbers, of two characters each: the
 *              place in ARGV of what it asks for, the length of the lock's key and that of the claim's name; the key;
 *              and the name, which is the claim's id, a line break and its token. The verbs, and what they ask for:
 *                1 acquire, 5 try   terms
 *                2 renew            a ttl
 *                3 release          nothing, and an administrator's has no token
 *                4 look             how many claims to show; no name
 * ARGV[8..]    what the operations ask for, once where it is the same. Terms are JSON, [ttlMs, weight, limit, priority,
 *              owner, info, application]; a limit of 0 is none, because not every client reads integers near 2^53 exactly
 *
 * The operations are neither JSON nor an argument each, because taking those apart costs as much as all the rest.
 *
 * Replies one list: the number of the call; what each operation came to, one after the other; and the grants to the owners
 * of ARGV[1], each as the number of an operation on the key, owner, id and fence. What an operation comes to:
 *   1, fence, acquiredAtMs, expiresInMs   held
 *   2, expiresInMs, retryInMs, fence      waiting; the fence of the latest grant
 *   3, reason                             refused: 1 contended, 2 queue full, 3 id reused
 *   4                                     gone
 *   5, owner                              taken over by that owner
 *   0 or 1                                whether a release removed the claim
 *   -1, text                              failed: a key of this lock is not what Holdfast wrote, and the others are fine
 *   a list                                look: fence, heldCount, heldWeight, waitingCount, held, waiting; claims as lists
 *
 * A lock key is a string in one of two forms. Held by one claim alone, it is that claim: "h", three numbers (fence,
 * time of the grant, expiry), its name, a line break and its terms, and where several servers agreed upon the fence another
 * line with who proposed it (`confirm-script.ts` has the rules); and most operations are two commands. Otherwise it
 * says that the record is spread over a hash of claims and sorted sets by expiry, limit and turn, of which each operation
 * touches O(log n): "s" and four numbers (fence, arrivals, weight of the held, last expiry). A record that was spread
 * stays so until nobody has or wants the key, so a lone holder is one that was never taken over.
 */
export const LUA = `
local call, byte, sub, match = redis.call, string.byte, string.sub, string.match
local time = call('TIME')
local us = time[1] * 1000000 + time[2]
local now = math.floor(us / 1000)
local partition = ARGV[3]
local locks = partition .. ':lock:'
local granted = {}
local high

-- Above every fence of this partition so far, whether or not its record still exists, above what the client has seen
-- of a server that was failed over from, and at least the time.
local function next_fence(last)
  high = high or math.max(tonumber(call('GET', KEYS[1]) or 0), tonumber(ARGV[5]))
  high = math.max(us, high + 1, last + 1)
  return high
end

-- What a claim is asked for with: ttl, weight, limit, priority, owner, info, application. Most of a batch share one.
local terms_by_text = {}
local function terms_of(text)
  local terms = terms_by_text[text]
  if not terms then
    terms = cjson.decode(text)
    if terms[3] == 0 then terms[3] = UNLIMITED end
    terms_by_text[text] = terms
  end
  return terms
end

local function lone_text(fence, acquired, expires, name, terms)
  return 'h' .. struct.pack('<ddd', fence, acquired, expires) .. name .. '\\n' .. terms
end

-- The id, the token and the terms of a lone claim, and who proposed its fence, if anybody did.
local function read_lone(text)
  local id, token, terms_text, agreed_by = match(text, '^([^\\n]*)\\n([^\\n]*)\\n([^\\n]*)\\n?(.*)$', 26)
  if not id then error('not the text of a lock') end
  return id, token, terms_text, agreed_by ~= '' and agreed_by or nil
end

-- The rules in full, for records with several claims. They are made when first needed: to make them costs as much as
-- an operation.

local function make_rules()
  local asked -- the token whose caller learns of a grant from the answer
  local records = {}
  local pack, unpack = cmsgpack.pack, cmsgpack.unpack

  local function read_claim(record, id)
    local text = call('HGET', record.claims_key, id)
    return text and unpack(text)
  end

  local function write_claim(record, claim)
    record.last = math.max(record.last, claim[EXPIRES])
    call('HSET', record.claims_key, claim[ID], pack(claim))
  end

  local function write_expiry(record, claim)
    write_claim(record, claim)
    local by_expiry = claim[FENCE] == 0 and record.waiting_key or record.held_key
    call('ZADD', by_expiry, claim[EXPIRES], claim[ID])
  end

  local function enqueue(record, claim)
    write_expiry(record, claim)
    call('ZADD', record.queue_key, (65535 - claim[PRIORITY]) * 137438953472 + claim[ARRIVAL], claim[ID])
  end

  local function hold(record, claim)
    write_expiry(record, claim)
    call('ZADD', record.limits_key, claim[LIMIT], claim[ID])
    record.weight = record.weight + claim[WEIGHT]
  end

  local function leave_queue(record, claim)
    call('ZREM', record.waiting_key, claim[ID])
    call('ZREM', record.queue_key, claim[ID])
  end

  local function remove(record, claim)
    call('HDEL', record.claims_key, claim[ID])
    if claim[FENCE] == 0 then
      leave_queue(record, claim)
    else
      call('ZREM', record.held_key, claim[ID])
      call('ZREM', record.limits_key, claim[ID])
      record.weight = record.weight - claim[WEIGHT]
    end
  end

  local function head_of(record)
    local id = call('ZRANGE', record.queue_key, 0, 0)[1]
    return id and read_claim(record, id)
  end

  local function fits(record, claim)
    local tightest = call('ZRANGE', record.limits_key, 0, 0, 'WITHSCORES')[2]
    local limit = tightest and math.min(claim[LIMIT], tonumber(tightest)) or claim[LIMIT]
    return record.weight + claim[WEIGHT] <= limit
  end

  local function stamp(record, claim)
    record.fence = next_fence(record.fence)
    claim[FENCE], claim[ACQUIRED], claim[AGREED_BY] = record.fence, now, nil
  end

  local function grant_head(record)
    local head = head_of(record)
    while head and fits(record, head) do
      leave_queue(record, head)
      stamp(record, head)
      hold(record, head)
      if head[TOKEN] ~= asked then granted[#granted + 1] = { record, head[OWNER], head[ID], head[FENCE] } end
      head = head_of(record)
    end
  end

  local function settle(record)
    for _, by_expiry in ipairs({ record.held_key, record.waiting_key }) do
      for _, id in ipairs(call('ZRANGEBYSCORE', by_expiry, '-inf', now)) do
        remove(record, read_claim(record, id))
      end
    end
    grant_head(record)
  end

  local function held_answer(claim)
    return 1, claim[FENCE], claim[ACQUIRED], claim[EXPIRES] - now
  end

  local function waiting_answer(record, claim)
    local retry = tonumber(call('ZRANGE', record.held_key, 0, 0, 'WITHSCORES')[2])
    local head = head_of(record)
    if head[ID] ~= claim[ID] then retry = math.max(retry, head[EXPIRES]) end
    return 2, claim[EXPIRES] - now, retry - now, record.fence
  end

  local function acquire_again(record, claim, token, wait, terms)
    if claim[WEIGHT] ~= terms[2] or claim[LIMIT] ~= terms[3] or claim[PRIORITY] ~= terms[4] then return 3, 3 end
    if claim[TOKEN] ~= token then
      if claim[FENCE] == 0 and not wait then return 3, 1 end
      claim[TOKEN] = token
      if claim[FENCE] ~= 0 then
        stamp(record, claim)
        claim[PROMISED] = claim[EXPIRES]
      end
    end
    claim[TTL], claim[OWNER], claim[INFO], claim[APPLICATION] = terms[1], terms[5], terms[6], terms[7]
    claim[EXPIRES] = math.max(claim[EXPIRES], now + terms[1])
    write_expiry(record, claim)
    if claim[FENCE] ~= 0 then return held_answer(claim) end
    if wait then return waiting_answer(record, claim) end
    remove(record, claim)
    grant_head(record)
    return 3, 1
  end

  local function acquire(record, id, token, asks, verb)
    local wait, terms = verb == ACQUIRE, terms_of(asks)
    settle(record)
    local claim = read_claim(record, id)
    if claim then return acquire_again(record, claim, token, wait, terms) end
    claim = { id, token, terms[2], terms[3], terms[4], terms[1], terms[5], terms[6], terms[7],
      record.arrivals, 0, 0, now + terms[1], 0 }
    record.arrivals = record.arrivals + 1
    enqueue(record, claim)
    grant_head(record)
    claim = read_claim(record, id)
    if claim[FENCE] ~= 0 then return held_answer(claim) end
    if not wait then
      remove(record, claim)
      return 3, 1
    end
    if call('ZCARD', record.queue_key) > tonumber(ARGV[2]) then
      remove(record, claim)
      return 3, 2
    end
    return waiting_answer(record, claim)
  end

  local function renew(record, id, token, asks)
    settle(record)
    local claim = read_claim(record, id)
    if not claim then return 4 end
    if token ~= '' and token ~= claim[TOKEN] then return 5, claim[OWNER] end
    local expires = now + (asks or claim[TTL])
    if expires > claim[EXPIRES] then
      claim[EXPIRES] = expires
      write_expiry(record, claim)
    end
    if claim[FENCE] ~= 0 then return held_answer(claim) end
    return waiting_answer(record, claim)
  end

  local function release(record, id, token)
    settle(record)
    local claim = read_claim(record, id)
    if not claim or (token ~= '' and token ~= claim[TOKEN]) then return 0 end
    if token ~= '' and claim[PROMISED] > now then
      claim[TOKEN], claim[EXPIRES] = NOBODY, claim[PROMISED]
      write_expiry(record, claim)
    else
      remove(record, claim)
      grant_head(record)
    end
    return 1
  end

  local function show(claims, most, before)
    local weight, shown = 0, {}
    table.sort(claims, before)
    for i, claim in ipairs(claims) do
      weight = weight + claim[WEIGHT]
      if i <= most then
        local limit = claim[LIMIT] == UNLIMITED and 0 or claim[LIMIT]
        shown[i] = { claim[ID], claim[WEIGHT], limit, claim[PRIORITY], claim[TTL], claim[OWNER], claim[INFO],
          claim[APPLICATION], claim[EXPIRES] - now, claim[FENCE], claim[ACQUIRED] }
      end
    end
    return shown, weight
  end

  local function by_fence(a, b) return a[FENCE] < b[FENCE] end

  local function by_turn(a, b)
    if a[PRIORITY] ~= b[PRIORITY] then return a[PRIORITY] > b[PRIORITY] end
    return a[ARRIVAL] < b[ARRIVAL]
  end

  local function look(record, most)
    local held, waiting = {}, {}
    local claims = record.lone and { record.lone } or {}
    if not record.lone then
      for _, text in ipairs(call('HVALS', record.claims_key)) do claims[#claims + 1] = unpack(text) end
    end
    for _, claim in ipairs(claims) do
      if claim[EXPIRES] > now then table.insert(claim[FENCE] == 0 and waiting or held, claim) end
    end
    local shown_held, weight = show(held, most, by_fence)
    local shown_waiting = show(waiting, most, by_turn)
    local fence = #claims > 0 and record.fence or 0
    return { fence, #held, weight, #waiting, shown_held, shown_waiting }
  end

  -- Records, from either form. Whatever changes one makes it a spread one.

  local function load(key, n)
    local record = records[key]
    if record then return record end
    record = {
      key = key, lock_key = locks .. key, n = n, fence = 0, arrivals = 0, weight = 0, last = 0,
      claims_key = partition .. ':claims:' .. key,
      held_key = partition .. ':held:' .. key,
      limits_key = partition .. ':limits:' .. key,
      waiting_key = partition .. ':waiting:' .. key,
      queue_key = partition .. ':queue:' .. key,
    }
    local text = call('GET', record.lock_key)
    if text and byte(text) == LONE then
      local fence, acquired, expires = struct.unpack('<ddd', text, 2)
      local id, token, terms_text, agreed_by = read_lone(text)
      local terms = terms_of(terms_text)
      record.fence, record.arrivals = fence, 1
      record.lone = { id, token, terms[2], terms[3], terms[4], terms[1], terms[5], terms[6], terms[7],
        0, fence, acquired, expires, 0, agreed_by }
    elseif text then
      record.fence, record.arrivals, record.weight, record.last = struct.unpack('<dddd', text, 2)
    end
    return record
  end

  local verbs = { [ACQUIRE] = acquire, [RENEW] = renew, [RELEASE] = release, [TRY] = acquire }
  local rules = {}

  function rules.apply(n, verb, key, name, asks)
    local record = load(key, n)
    if verb == LOOK then return look(record, tonumber(asks)) end
    if record.lone then
      hold(record, record.lone)
      record.lone = nil
    end
    records[key] = record
    local id, token = match(name, '^([^\\n]*)\\n(.*)$')
    asked = token
    return verbs[verb](record, id, token, asks, verb)
  end

  -- What is not known to be whole is not written.
  function rules.give_up(key) records[key] = nil end

  function rules.is_loaded(key) return records[key] ~= nil end

  function rules.save()
    for _, record in pairs(records) do
      local keys = { record.claims_key, record.held_key, record.limits_key, record.waiting_key, record.queue_key }
      if call('HLEN', record.claims_key) == 0 then
        call('DEL', record.lock_key, keys[1], keys[2], keys[3], keys[4], keys[5])
      else
        local text = 's' .. struct.pack('<dddd', record.fence, record.arrivals, record.weight, record.last)
        local kept = record.last + 1000
        call('SET', record.lock_key, text, 'PXAT', kept)
        for _, key in ipairs(keys) do call('PEXPIREAT', key, kept) end
      end
    end
  end

  function rules.tell(reply, size)
    local own = {}
    for _, owner in ipairs(cjson.decode(ARGV[1])) do own[owner] = true end
    for _, grant in ipairs(granted) do
      local record, owner, id, fence = grant[1], grant[2], grant[3], grant[4]
      if own[owner] then
        reply[size + 1], reply[size + 2], reply[size + 3], reply[size + 4] = record.n, owner, id, fence
        size = size + 4
      else
        -- A user may lack the right to it. What was done stays done, and the waiter learns of it at a heartbeat.
        local message = cjson.encode({ record.key, id, string.format('%.0f', fence) })
        redis.pcall('PUBLISH', ARGV[4] .. owner, message)
      end
    end
  end

  return rules
end

-- A key that nobody has, or that one claim holds alone: what most locks are all their life. nil when it is not that
-- simple.

local function apply_alone(key, verb, name, asks)
  key = locks .. key
  local text = call('GET', key)
  local fence, acquired, expires
  if text then
    if byte(text) ~= LONE then return nil end
    fence, acquired, expires = struct.unpack('<ddd', text, 2)
    if expires <= now then
      if verb ~= ACQUIRE and verb ~= TRY then call('DEL', key) end
      text = nil
    end
  end
  if verb == ACQUIRE or verb == TRY then
    if not text then
      local ttl = tonumber(match(asks, '^%[(%d+)'))
      fence = next_fence(0)
      call('SET', key, lone_text(fence, now, now + ttl, name, asks), 'PX', ttl + 1000)
      return 1, fence, now, ttl
    end
    local id, _, terms_text = read_lone(text)
    if verb == ACQUIRE or id == match(name, '^[^\\n]*') then return nil end
    local holder, asking = terms_of(terms_text), terms_of(asks)
    if holder[2] + asking[2] <= math.min(holder[3], asking[3]) then return nil end
    return 3, 1
  end
  local nothing = verb == RELEASE and 0 or 4
  if not text then return nothing end
  -- What names the claim in full, id and token, is most of what is ever asked, and needs no taking apart.
  local named = sub(text, 26, 25 + #name) == name and byte(text, 26 + #name) == LINE_BREAK
  if verb == RELEASE and named then
    call('DEL', key)
    return 1
  end
  local id, token, terms_text, agreed_by = read_lone(text)
  if not named then
    local asked_id, asked_token = match(name, '^([^\\n]*)\\n(.*)$')
    if id ~= asked_id then return nothing end
    if asked_token ~= '' and verb == RENEW then return 5, terms_of(terms_text)[OWNER_TERM] end
    if asked_token ~= '' then return nothing end
    if verb == RELEASE then
      call('DEL', key)
      return 1
    end
  end
  local until_ms = now + (asks or match(terms_text, '^%[(%d+)'))
  if until_ms > expires then
    expires = until_ms
    local rest = agreed_by and terms_text .. '\\n' .. agreed_by or terms_text
    call('SET', key, lone_text(fence, acquired, expires, id .. '\\n' .. token, rest), 'PX', expires - now + 1000)
  end
  return 1, fence, acquired, expires - now
end

local function number(first, second) return (first - ZERO) * 64 + second - ZERO end

local rules

local function apply(n, verb, key, name, asks)
  if verb ~= LOOK and not (rules and rules.is_loaded(key)) then
    local first, second, third, fourth = apply_alone(key, verb, name, asks)
    if first then return first, second, third, fourth end
  end
  rules = rules or make_rules()
  return rules.apply(n, verb, key, name, asks)
end

-- A server that cannot write says so at the first write, before anything is done: then nothing is. But one key that is
-- not a lock must not keep the batch from being finished, when other locks have been changed already.
local reply, size = { ARGV[6] }, 1
local operations, at, n = ARGV[7], 1, 0
while at <= #operations do
  local verb, asks1, asks2, key1, key2, name1, name2 = byte(operations, at, at + 6)
  local key_ends = at + 6 + number(key1, key2)
  local name_ends = key_ends + number(name1, name2)
  local key, name = sub(operations, at + 7, key_ends), sub(operations, key_ends + 1, name_ends)
  n, at = n + 1, name_ends + 1
  local ok, first, second, third, fourth = pcall(apply, n, verb - ZERO, key, name, ARGV[number(asks1, asks2)])
  if not ok then
    -- Versions differ in whether they raise a table or a text, and where in the text the code stands.
    local text = type(first) == 'table' and first.err or tostring(first)
    text = string.gsub(text, '^@?user_script: ?%d+: ', '')
    text = string.gsub(text, '^%-', '')
    local code = match(text, '^(%u%u+) ')
    -- Raised once more, the code would stand behind another one.
    if code and code ~= 'WRONGTYPE' then return redis.error_reply(text) end
    if rules then rules.give_up(key) end
    first, second = -1, text
  end
  reply[size + 1], reply[size + 2], reply[size + 3], reply[size + 4] = first, second, third, fourth
  size = size + (fourth and 4 or third and 3 or second and 2 or 1)
end
if rules then rules.save() end
if high then call('SET', KEYS[1], high) end
if #granted > 0 then rules.tell(reply, size) end
return reply
`;

export const SCRIPT = withConstants(LUA);
