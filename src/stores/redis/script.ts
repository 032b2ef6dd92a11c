/**
 * The record machine of `src/core/record.ts` in Lua, applied to a batch of operations inside Redis. A differential test
 * plays the same random histories to both and compares every answer.
 *
 * KEYS[1]      the partition's fence: the highest that was ever given out there
 * KEYS[2..]    the lock keys that the operations are about
 * ARGV[1]      JSON: the operations, each a list that begins with its verb and the index of its key in KEYS
 *                (a limit of 0 is none: not every client reads integers near 2^53 exactly)
 *                [1, key, id, token, weight, limit, priority, ttlMs, wait (0 or 1), owner, info, application]  acquire
 *                [2, key, id, token, ttlMs]   renew; ttlMs 0 is the claim's own
 *                [3, key, id, token]          release; token "" is an administrator's
 *                [4, key, maxClaims]          look
 * ARGV[2]      JSON: the owners whose grants come back in the reply, as a list
 * ARGV[3]      the most claims that may wait for one key
 * ARGV[4]      the beginning of the partition's keys, up to and with their hash tag
 * ARGV[5]      the beginning of the channels that other owners listen to
 *
 * Replies two lists: the grants to the owners of ARGV[2], each as key index, owner and id; and an answer per operation:
 *   [1, fence, acquiredAtMs, expiresInMs]   held
 *   [2, expiresInMs, retryInMs]             waiting
 *   [3, reason]                             refused: 1 contended, 2 queue full, 3 id reused
 *   [4] or [4, owner]                       gone, or taken over by that owner
 *   0 or 1                                  whether a release removed the claim
 *   [fence, heldCount, heldWeight, waitingCount, held, waiting]   look; claims as lists
 *
 * A record with few claims is one string: what most locks are all their life, and two commands a time. One with many is
 * spread over sorted sets and a hash, beside that string, and each operation touches O(log n) of it.
 */
export const SCRIPT = `
local ID, TOKEN, WEIGHT, LIMIT, PRIORITY, TTL, OWNER, INFO, APPLICATION = 1, 2, 3, 4, 5, 6, 7, 8, 9
local ARRIVAL, FENCE, ACQUIRED, EXPIRES, PROMISED = 10, 11, 12, 13, 14
local FEW = 16
local UNLIMITED = 9007199254740991
local NOBODY = ''

local call, pack, unpack = redis.call, cmsgpack.pack, cmsgpack.unpack
local time = call('TIME')
local us = time[1] * 1000000 + time[2]
local now = math.floor(us / 1000)
local partition, max_waiters = ARGV[4], tonumber(ARGV[3])
local high, granted, asked = nil, {}, nil -- asked: the token with which a grant is learnt from the answer

-- Above every fence of this partition so far, whether or not its record still exists, and at least the time.
local function next_fence(record)
  if not high then high = tonumber(call('GET', KEYS[1]) or 0) end
  high = math.max(us, high + 1)
  record.fence = math.max(record.fence + 1, high)
  high = record.fence
  return record.fence
end

-- A record with few claims: lists in memory, written back as one string.

local few = {}

local function remove_from(list, claim)
  for i = 1, #list do
    if list[i] == claim then
      table.remove(list, i)
      return
    end
  end
end

local function drop_from(list)
  for i = #list, 1, -1 do
    if list[i][EXPIRES] <= now then table.remove(list, i) end
  end
end

function few.expire(record)
  drop_from(record.held)
  drop_from(record.queue)
end

function few.is_idle(record) return #record.held == 0 and #record.queue == 0 end

function few.head(record) return record.queue[1] end

function few.waiting(record) return #record.queue end

function few.held_weight(record)
  local weight = 0
  for _, claim in ipairs(record.held) do weight = weight + claim[WEIGHT] end
  return weight
end

function few.tightest(record)
  local limit = UNLIMITED
  for _, claim in ipairs(record.held) do limit = math.min(limit, claim[LIMIT]) end
  return limit
end

function few.first_end(record)
  local first = math.huge
  for _, claim in ipairs(record.held) do first = math.min(first, claim[EXPIRES]) end
  return first
end

function few.find(record, id)
  for _, claim in ipairs(record.held) do
    if claim[ID] == id then return claim end
  end
  for _, claim in ipairs(record.queue) do
    if claim[ID] == id then return claim end
  end
end

function few.enqueue(record, claim)
  local queue = record.queue
  local i = #queue
  while i > 0 and queue[i][PRIORITY] < claim[PRIORITY] do i = i - 1 end
  table.insert(queue, i + 1, claim)
end

function few.leave_queue(record, claim) remove_from(record.queue, claim) end

function few.forget() end

function few.hold(record, claim) table.insert(record.held, claim) end

function few.drop_held(record, claim) remove_from(record.held, claim) end

function few.changed() end

function few.claims(record) return record.held, record.queue end

function few.save(record)
  if few.is_idle(record) then
    if record.exists then call('DEL', record.key) end
    return
  end
  local last = 0
  for _, claim in ipairs(record.held) do last = math.max(last, claim[EXPIRES]) end
  for _, claim in ipairs(record.queue) do last = math.max(last, claim[EXPIRES]) end
  local text = pack({ record.fence, record.arrivals, record.held, record.queue })
  call('SET', record.key, text, 'PX', last - now + 1000)
end

-- A record with many claims: sorted sets by expiry, limit and turn, and a hash of claims.

local many = {}

local function number(value) return string.format('%.0f', value) end

local function read_claim(record, id)
  local text = call('HGET', record.claims_key, id)
  return text and unpack(text)
end

local function write_claim(record, claim)
  record.last = math.max(record.last, claim[EXPIRES])
  call('HSET', record.claims_key, claim[ID], pack(claim))
end

function many.expire(record)
  for _, id in ipairs(call('ZRANGEBYSCORE', record.held_key, '-inf', now)) do
    many.drop_held(record, read_claim(record, id))
  end
  for _, id in ipairs(call('ZRANGEBYSCORE', record.waiting_key, '-inf', now)) do
    local claim = read_claim(record, id)
    many.leave_queue(record, claim)
    many.forget(record, claim)
  end
end

function many.is_idle(record) return call('HLEN', record.claims_key) == 0 end

function many.head(record)
  local id = call('ZRANGE', record.queue_key, 0, 0)[1]
  return id and read_claim(record, id)
end

function many.waiting(record) return call('ZCARD', record.queue_key) end

function many.held_weight(record) return record.weight end

function many.tightest(record)
  return tonumber(call('ZRANGE', record.limits_key, 0, 0, 'WITHSCORES')[2] or UNLIMITED)
end

function many.first_end(record)
  return tonumber(call('ZRANGE', record.held_key, 0, 0, 'WITHSCORES')[2])
end

many.find = read_claim

function many.enqueue(record, claim)
  write_claim(record, claim)
  call('ZADD', record.waiting_key, number(claim[EXPIRES]), claim[ID])
  call('ZADD', record.queue_key, number((65535 - claim[PRIORITY]) * 137438953472 + claim[ARRIVAL]), claim[ID])
end

function many.leave_queue(record, claim)
  call('ZREM', record.waiting_key, claim[ID])
  call('ZREM', record.queue_key, claim[ID])
end

function many.forget(record, claim) call('HDEL', record.claims_key, claim[ID]) end

function many.hold(record, claim)
  write_claim(record, claim)
  call('ZADD', record.held_key, number(claim[EXPIRES]), claim[ID])
  call('ZADD', record.limits_key, number(claim[LIMIT]), claim[ID])
  record.weight = record.weight + claim[WEIGHT]
end

function many.drop_held(record, claim)
  call('ZREM', record.held_key, claim[ID])
  call('ZREM', record.limits_key, claim[ID])
  many.forget(record, claim)
  record.weight = record.weight - claim[WEIGHT]
end

function many.changed(record, claim)
  write_claim(record, claim)
  local by_expiry = claim[FENCE] == 0 and record.waiting_key or record.held_key
  call('ZADD', by_expiry, number(claim[EXPIRES]), claim[ID])
end

function many.claims(record)
  local held, queue = {}, {}
  for _, text in ipairs(call('HVALS', record.claims_key)) do
    local claim = unpack(text)
    table.insert(claim[FENCE] == 0 and queue or held, claim)
  end
  return held, queue
end

function many.save(record)
  local keys = { record.claims_key, record.held_key, record.limits_key, record.waiting_key, record.queue_key }
  if many.is_idle(record) then
    call('DEL', record.key, keys[1], keys[2], keys[3], keys[4], keys[5])
    return
  end
  local text = pack({ record.fence, record.arrivals, false, record.weight, record.last })
  call('SET', record.key, text, 'PXAT', number(record.last + 1000))
  for _, key in ipairs(keys) do call('PEXPIREAT', key, number(record.last + 1000)) end
end

local function open_many(record)
  local name = string.sub(record.key, #partition + 7)
  record.form = many
  record.claims_key = partition .. ':claims:' .. name
  record.held_key = partition .. ':held:' .. name
  record.limits_key = partition .. ':limits:' .. name
  record.waiting_key = partition .. ':waiting:' .. name
  record.queue_key = partition .. ':queue:' .. name
end

local function spread(record)
  local held, queue = record.held, record.queue
  open_many(record)
  record.weight, record.last = 0, 0
  for _, claim in ipairs(held) do many.hold(record, claim) end
  for _, claim in ipairs(queue) do many.enqueue(record, claim) end
end

-- The rules.

local function remove(record, claim)
  local form = record.form
  if claim[FENCE] ~= 0 then
    form.drop_held(record, claim)
  else
    form.leave_queue(record, claim)
    form.forget(record, claim)
  end
end

local function grant_head(record)
  local form = record.form
  local head = form.head(record)
  while head and form.held_weight(record) + head[WEIGHT] <= math.min(head[LIMIT], form.tightest(record)) do
    form.leave_queue(record, head)
    head[FENCE], head[ACQUIRED] = next_fence(record), now
    form.hold(record, head)
    if head[TOKEN] ~= asked then granted[#granted + 1] = { record, head[OWNER], head[ID] } end
    head = form.head(record)
  end
end

local function settle(record)
  record.form.expire(record)
  grant_head(record)
end

local function held_answer(claim)
  return { 1, claim[FENCE], claim[ACQUIRED], claim[EXPIRES] - now }
end

local function waiting_answer(record, claim)
  local head, retry = record.form.head(record), record.form.first_end(record)
  if head[ID] ~= claim[ID] then retry = math.max(retry, head[EXPIRES]) end
  return { 2, claim[EXPIRES] - now, retry - now }
end

local function acquire_again(record, claim, op)
  if claim[WEIGHT] ~= op[5] or claim[LIMIT] ~= op[6] or claim[PRIORITY] ~= op[7] then return { 3, 3 } end
  if claim[TOKEN] ~= op[4] then
    if claim[FENCE] == 0 and op[9] == 0 then return { 3, 1 } end
    claim[TOKEN] = op[4]
    if claim[FENCE] ~= 0 then
      claim[FENCE], claim[ACQUIRED] = next_fence(record), now
      claim[PROMISED] = claim[EXPIRES]
    end
  end
  claim[TTL], claim[OWNER], claim[INFO], claim[APPLICATION] = op[8], op[10], op[11], op[12]
  claim[EXPIRES] = math.max(claim[EXPIRES], now + op[8])
  record.form.changed(record, claim)
  if claim[FENCE] ~= 0 then return held_answer(claim) end
  if op[9] == 1 then return waiting_answer(record, claim) end
  remove(record, claim)
  grant_head(record)
  return { 3, 1 }
end

local verbs = {}

function verbs.acquire(record, op)
  settle(record)
  local form = record.form
  local claim = form.find(record, op[3])
  if claim then return acquire_again(record, claim, op) end
  if form == few and #record.held + #record.queue >= FEW then
    spread(record)
    form = many
  end
  claim = { op[3], op[4], op[5], op[6], op[7], op[8], op[10], op[11], op[12], record.arrivals, 0, 0, now + op[8], 0 }
  record.arrivals = record.arrivals + 1
  form.enqueue(record, claim)
  grant_head(record)
  claim = form.find(record, op[3])
  if claim[FENCE] ~= 0 then return held_answer(claim) end
  if op[9] == 0 then
    remove(record, claim)
    return { 3, 1 }
  end
  if form.waiting(record) > max_waiters then
    remove(record, claim)
    return { 3, 2 }
  end
  return waiting_answer(record, claim)
end

function verbs.renew(record, op)
  settle(record)
  local claim = record.form.find(record, op[3])
  if not claim then return { 4 } end
  if op[4] ~= '' and op[4] ~= claim[TOKEN] then return { 4, claim[OWNER] } end
  local expires = now + (op[5] > 0 and op[5] or claim[TTL])
  if expires > claim[EXPIRES] then
    claim[EXPIRES] = expires
    record.form.changed(record, claim)
  end
  if claim[FENCE] ~= 0 then return held_answer(claim) end
  return waiting_answer(record, claim)
end

function verbs.release(record, op)
  settle(record)
  local claim = record.form.find(record, op[3])
  if not claim or (op[4] ~= '' and op[4] ~= claim[TOKEN]) then return 0 end
  if op[4] ~= '' and claim[PROMISED] > now then
    claim[TOKEN], claim[EXPIRES] = NOBODY, claim[PROMISED]
    record.form.changed(record, claim)
  else
    remove(record, claim)
    grant_head(record)
  end
  return 1
end

local function show(list, most, before)
  local alive, weight, shown = {}, 0, {}
  for _, claim in ipairs(list) do
    if claim[EXPIRES] > now then
      alive[#alive + 1] = claim
      weight = weight + claim[WEIGHT]
    end
  end
  table.sort(alive, before)
  for i = 1, math.min(#alive, most) do
    local claim = alive[i]
    local limit = claim[LIMIT] == UNLIMITED and 0 or claim[LIMIT]
    shown[i] = { claim[ID], claim[WEIGHT], limit, claim[PRIORITY], claim[TTL], claim[OWNER], claim[INFO],
      claim[APPLICATION], claim[EXPIRES] - now, claim[FENCE], claim[ACQUIRED] }
  end
  return shown, #alive, weight
end

local function by_fence(a, b) return a[FENCE] < b[FENCE] end

local function by_turn(a, b)
  if a[PRIORITY] ~= b[PRIORITY] then return a[PRIORITY] > b[PRIORITY] end
  return a[ARRIVAL] < b[ARRIVAL]
end

function verbs.look(record, op)
  local held, queue = record.form.claims(record)
  local shown_held, held_count, held_weight = show(held, op[3], by_fence)
  local shown_queue, waiting_count = show(queue, op[3], by_turn)
  return { record.fence, held_count, held_weight, waiting_count, shown_held, shown_queue }
end

-- The batch.

local apply = { verbs.acquire, verbs.renew, verbs.release, verbs.look }
local records, touched = {}, {}

local function load(index)
  local record = records[index]
  if record then return record end
  record = { key = KEYS[index], index = index, form = few, fence = 0, arrivals = 0, held = {}, queue = {} }
  local text = call('GET', record.key)
  if text then
    local stored = unpack(text)
    record.exists, record.fence, record.arrivals = true, stored[1], stored[2]
    if stored[3] then
      record.held, record.queue = stored[3], stored[4]
    else
      open_many(record)
      record.weight, record.last = stored[4], stored[5]
    end
  end
  records[index] = record
  return record
end

local answers = {}
for i, op in ipairs(cjson.decode(ARGV[1])) do
  local record = load(op[2])
  if op[1] == 1 and op[6] == 0 then op[6] = UNLIMITED end
  asked = op[1] ~= 4 and op[4] or nil
  if op[1] ~= 4 then touched[op[2]] = record end
  answers[i] = apply[op[1]](record, op)
end
for _, record in pairs(touched) do record.form.save(record) end
if high then call('SET', KEYS[1], number(high)) end

local own, mine = {}, {}
if #granted > 0 then
  for _, owner in ipairs(cjson.decode(ARGV[2])) do own[owner] = true end
  for _, grant in ipairs(granted) do
    local record, owner, id = grant[1], grant[2], grant[3]
    if own[owner] then
      mine[#mine + 1] = record.index
      mine[#mine + 1] = owner
      mine[#mine + 1] = id
    else
      -- A user may lack the right to it. What was done stays done, and the waiter learns of it at a heartbeat.
      redis.pcall('PUBLISH', ARGV[5] .. owner, cjson.encode({ string.sub(record.key, #partition + 7), id }))
    end
  end
end
return { mine, answers }
`;
