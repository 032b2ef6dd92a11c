/**
 * The record machine of `src/core/record.ts` in Lua, applied to a batch of operations inside Redis. A differential test
 * plays the same random histories to both and compares every answer.
 *
 * KEYS[1]      the partition's fence: the highest that was ever given out there
 * KEYS[2..]    the lock keys that the operations are about
 * ARGV[1]      JSON: the operations, each a list that begins with its verb and the index of its key in KEYS
 *                [1, key, id, token, wait (0 or 1), terms]   acquire; terms is an index in ARGV
 *                [2, key, id, token, ttlMs]                  renew; ttlMs 0 is the claim's own
 *                [3, key, id, token]                         release; token "" is an administrator's
 *                [4, key, maxClaims]                         look
 * ARGV[2]      JSON: the owners whose grants come back in the reply, as a list
 * ARGV[3]      the most claims that may wait for one key
 * ARGV[4]      the beginning of the partition's keys, up to and with their hash tag
 * ARGV[5]      the beginning of the channels that other owners listen to
 * ARGV[6]      the highest fence that this client has seen: what the server has lost of its own, it may get back from here
 * ARGV[7..]    JSON: terms, [ttlMs, weight, limit, priority, owner, info, application]; a limit of 0 is none, because not
 *              every client reads integers near 2^53 exactly
 *
 * Replies two lists: the grants to the owners of ARGV[2], each as key index, owner and id; and an answer per operation:
 *   [1, fence, acquiredAtMs, expiresInMs]   held
 *   [2, expiresInMs, retryInMs]             waiting
 *   [3, reason]                             refused: 1 contended, 2 queue full, 3 id reused
 *   [4] or [4, owner]                       gone, or taken over by that owner
 *   0 or 1                                  whether a release removed the claim
 *   [-1, text]                              failed: a key of this lock is not what Holdfast wrote, and the others are fine
 *   [fence, heldCount, heldWeight, waitingCount, held, waiting]   look; claims as lists
 *
 * A claim also says who proposed its fence, where several servers agreed upon one: `confirm-script.ts` has the rules.
 *
 * A lock key is a string in one of two forms. Held by one claim alone, it is that claim, and most operations are two
 * commands. Otherwise it says that the record is spread over a hash of claims and sorted sets by expiry, limit and turn,
 * of which each operation touches O(log n). A record that was spread stays so until nobody has or wants the key,
 * so a lone holder is one that was never taken over.
 */
export const SCRIPT = `
local ID, TOKEN, WEIGHT, LIMIT, PRIORITY, TTL, OWNER, INFO, APPLICATION = 1, 2, 3, 4, 5, 6, 7, 8, 9
local ARRIVAL, FENCE, ACQUIRED, EXPIRES, PROMISED, AGREED_BY = 10, 11, 12, 13, 14, 15
local UNLIMITED = 9007199254740991
local SPREAD = 's'
local NOBODY = ''

local call, pack, unpack = redis.call, cmsgpack.pack, cmsgpack.unpack
local time = call('TIME')
local us = time[1] * 1000000 + time[2]
local now = math.floor(us / 1000)
local partition = ARGV[4]
local granted = {}
local high

-- Above every fence of this partition so far, whether or not its record still exists, above what the client has seen
-- of a server that was failed over from, and at least the time.
local function next_fence(last)
  high = high or math.max(tonumber(call('GET', KEYS[1]) or 0), tonumber(ARGV[6]))
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
    terms.kept = tostring(terms[1] + 1000)
    terms_by_text[text] = terms
  end
  return terms
end

-- The rules in full, for records with several claims. They are made when first needed: to make them costs as much as
-- an operation.

local function make_rules()
  local asked -- the token whose caller learns of a grant from the answer
  local records = {}

  local function number(value) return string.format('%.0f', value) end

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
    call('ZADD', by_expiry, number(claim[EXPIRES]), claim[ID])
  end

  local function enqueue(record, claim)
    write_expiry(record, claim)
    call('ZADD', record.queue_key, number((65535 - claim[PRIORITY]) * 137438953472 + claim[ARRIVAL]), claim[ID])
  end

  local function hold(record, claim)
    write_expiry(record, claim)
    call('ZADD', record.limits_key, number(claim[LIMIT]), claim[ID])
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
      if head[TOKEN] ~= asked then granted[#granted + 1] = { record.index, head[OWNER], head[ID] } end
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
    return { 1, claim[FENCE], claim[ACQUIRED], claim[EXPIRES] - now }
  end

  local function waiting_answer(record, claim)
    local retry = tonumber(call('ZRANGE', record.held_key, 0, 0, 'WITHSCORES')[2])
    local head = head_of(record)
    if head[ID] ~= claim[ID] then retry = math.max(retry, head[EXPIRES]) end
    return { 2, claim[EXPIRES] - now, retry - now }
  end

  local function acquire_again(record, claim, token, wait, terms)
    if claim[WEIGHT] ~= terms[2] or claim[LIMIT] ~= terms[3] or claim[PRIORITY] ~= terms[4] then return { 3, 3 } end
    if claim[TOKEN] ~= token then
      if claim[FENCE] == 0 and wait == 0 then return { 3, 1 } end
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
    if wait == 1 then return waiting_answer(record, claim) end
    remove(record, claim)
    grant_head(record)
    return { 3, 1 }
  end

  local function acquire(record, op)
    local id, token, wait, terms = op[3], op[4], op[5], terms_of(ARGV[op[6]])
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
    if wait == 0 then
      remove(record, claim)
      return { 3, 1 }
    end
    if call('ZCARD', record.queue_key) > tonumber(ARGV[3]) then
      remove(record, claim)
      return { 3, 2 }
    end
    return waiting_answer(record, claim)
  end

  local function renew(record, op)
    settle(record)
    local claim = read_claim(record, op[3])
    if not claim then return { 4 } end
    if op[4] ~= '' and op[4] ~= claim[TOKEN] then return { 4, claim[OWNER] } end
    local expires = now + (op[5] > 0 and op[5] or claim[TTL])
    if expires > claim[EXPIRES] then
      claim[EXPIRES] = expires
      write_expiry(record, claim)
    end
    if claim[FENCE] ~= 0 then return held_answer(claim) end
    return waiting_answer(record, claim)
  end

  local function release(record, op)
    settle(record)
    local claim = read_claim(record, op[3])
    if not claim or (op[4] ~= '' and op[4] ~= claim[TOKEN]) then return 0 end
    if op[4] ~= '' and claim[PROMISED] > now then
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

  local function look(record, op)
    local held, waiting = {}, {}
    local claims = record.lone and { record.lone } or {}
    if not record.lone then
      for _, text in ipairs(call('HVALS', record.claims_key)) do claims[#claims + 1] = unpack(text) end
    end
    for _, claim in ipairs(claims) do
      if claim[EXPIRES] > now then table.insert(claim[FENCE] == 0 and waiting or held, claim) end
    end
    local shown_held, weight = show(held, op[3], by_fence)
    local shown_waiting = show(waiting, op[3], by_turn)
    local fence = #claims > 0 and record.fence or 0
    return { fence, #held, weight, #waiting, shown_held, shown_waiting }
  end

  -- Records, from either form. Whatever changes one makes it a spread one.

  local function load(index)
    local record = records[index]
    if record then return record end
    local key = KEYS[index]
    local name = string.sub(key, #partition + 7)
    record = {
      key = key, index = index, fence = 0, arrivals = 0, weight = 0, last = 0,
      claims_key = partition .. ':claims:' .. name,
      held_key = partition .. ':held:' .. name,
      limits_key = partition .. ':limits:' .. name,
      waiting_key = partition .. ':waiting:' .. name,
      queue_key = partition .. ':queue:' .. name,
    }
    local text = call('GET', key)
    if text then
      local first, second, third, fourth, fifth, sixth, seventh = unpack(text)
      if first == SPREAD then
        record.fence, record.arrivals, record.weight, record.last = second, third, fourth, fifth
      else
        if type(second) ~= 'string' then error('not the text of a lock') end
        local terms = terms_of(fourth)
        record.fence, record.arrivals = first, 1
        record.lone = { second, third, terms[2], terms[3], terms[4], terms[1], terms[5], terms[6], terms[7],
          0, first, fifth, sixth, 0, seventh }
      end
    end
    return record
  end

  local verbs = { acquire, renew, release }
  local rules = {}

  function rules.apply(op)
    local record = load(op[2])
    if op[1] == 4 then return look(record, op) end
    if record.lone then
      hold(record, record.lone)
      record.lone = nil
    end
    records[op[2]] = record
    asked = op[4]
    return verbs[op[1]](record, op)
  end

  -- What is not known to be whole is not written.
  function rules.give_up(index) records[index] = nil end

  function rules.is_loaded(index) return records[index] ~= nil end

  function rules.save()
    for _, record in pairs(records) do
      local keys = { record.claims_key, record.held_key, record.limits_key, record.waiting_key, record.queue_key }
      if call('HLEN', record.claims_key) == 0 then
        call('DEL', record.key, keys[1], keys[2], keys[3], keys[4], keys[5])
      else
        local text = pack(SPREAD, record.fence, record.arrivals, record.weight, record.last)
        local kept = number(record.last + 1000)
        call('SET', record.key, text, 'PXAT', kept)
        for _, key in ipairs(keys) do call('PEXPIREAT', key, kept) end
      end
    end
  end

  function rules.tell()
    local own, mine = {}, {}
    for _, owner in ipairs(cjson.decode(ARGV[2])) do own[owner] = true end
    for _, grant in ipairs(granted) do
      local index, owner, id = grant[1], grant[2], grant[3]
      if own[owner] then
        mine[#mine + 1] = index
        mine[#mine + 1] = owner
        mine[#mine + 1] = id
      else
        -- A user may lack the right to it. What was done stays done, and the waiter learns of it at a heartbeat.
        redis.pcall('PUBLISH', ARGV[5] .. owner, cjson.encode({ string.sub(KEYS[index], #partition + 7), id }))
      end
    end
    return mine
  end

  return rules
end

-- A key that nobody has, or that one claim holds alone: what most locks are all their life. nil when it is not that
-- simple.

local function apply_alone(op)
  local verb, key = op[1], KEYS[op[2]]
  local text = call('GET', key)
  local fence, id, token, terms_text, acquired, expires, agreed_by
  if text then
    fence, id, token, terms_text, acquired, expires, agreed_by = unpack(text)
    if fence == SPREAD then return nil end
    if type(id) ~= 'string' then error('not the text of a lock') end
    if expires <= now then
      if verb ~= 1 then call('DEL', key) end
      text = nil
    end
  end
  if verb == 1 then
    if not text then
      local terms = terms_of(ARGV[op[6]])
      fence = next_fence(0)
      call('SET', key, pack(fence, op[3], op[4], ARGV[op[6]], now, now + terms[1]), 'PX', terms.kept)
      return { 1, fence, now, terms[1] }
    end
    if op[5] == 1 or id == op[3] then return nil end
    local holder, asking = terms_of(terms_text), terms_of(ARGV[op[6]])
    if holder[2] + asking[2] <= math.min(holder[3], asking[3]) then return nil end
    return { 3, 1 }
  end
  local known = text and id == op[3]
  if verb == 3 then
    if not known or (op[4] ~= token and op[4] ~= '') then return 0 end
    call('DEL', key)
    return 1
  end
  if not known then return { 4 } end
  local terms = terms_of(terms_text)
  if op[4] ~= token and op[4] ~= '' then return { 4, terms[5] } end
  local until_ms = now + (op[5] > 0 and op[5] or terms[1])
  if until_ms > expires then
    expires = until_ms
    local renewed = pack(fence, id, token, terms_text, acquired, expires, agreed_by)
    call('SET', key, renewed, 'PX', tostring(expires - now + 1000))
  end
  return { 1, fence, acquired, expires - now }
end

local rules
local answers = {}
local function apply(op)
  local answer
  if op[1] ~= 4 and not (rules and rules.is_loaded(op[2])) then answer = apply_alone(op) end
  if answer then return answer end
  rules = rules or make_rules()
  return rules.apply(op)
end

-- A server that cannot write says so at the first write, before anything is done: then nothing is. But one key that is
-- not a lock must not keep the batch from being finished, when other locks have been changed already.
for i, op in ipairs(cjson.decode(ARGV[1])) do
  local ok, answer = pcall(apply, op)
  if not ok then
    -- Versions differ in whether they raise a table or a text, and where in the text the code stands.
    local text = type(answer) == 'table' and answer.err or tostring(answer)
    text = string.gsub(text, '^@?user_script: ?%d+: ', '')
    text = string.gsub(text, '^%-', '')
    local code = string.match(text, '^(%u%u+) ')
    if code and code ~= 'WRONGTYPE' then return redis.error_reply(text) end
    if rules then rules.give_up(op[2]) end
    answer = { -1, text }
  end
  answers[i] = answer
end
if rules then rules.save() end
if high then call('SET', KEYS[1], string.format('%.0f', high)) end
return { #granted > 0 and rules.tell() or {}, answers }
`;
