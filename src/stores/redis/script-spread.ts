/**
 * The part of the script that stores a record with several claims: a hash of claims by id, and sorted sets of ids. Each operation reads
 * and writes O(log n) of them.
 *
 *   claims    hash: id to the claim, packed
 *   held      sorted set: holders by expiry
 *   limits    sorted set: holders by limit
 *   waiting   sorted set: waiters by expiry
 *   queue     sorted set: waiters by priority and arrival
 */
export const SETS = ["claims", "held", "limits", "waiting", "queue"] as const;

/** The keys of the sets of `key` as a Lua expression. */
export const KEYS_OF = SETS.map((set) => `partition .. ':${set}:' .. key`).join(", ");

/**
 * Whether no set of a spread record is lost: Redis may evict any of them. Without waiters there are three. Three are also left if both sets
 * of the waiters are lost, but then there are more claims than holders.
 */
export const IS_WHOLE = `
local function is_whole(claims, held, limits, waiting, queue)
  local count = call('EXISTS', claims, held, limits, waiting, queue)
  if count ~= 3 then return count == 5 end
  local holders = call('ZCARD', held)
  return holders > 0 and call('HLEN', claims) == holders
end
`;

export const SPREAD = `
local partition = sub(KEYS[1], 1, -7)
local function keys_of(key)
  return ${KEYS_OF}
end
${IS_WHOLE}
local function read_claim(record, id)
  local packed = call('HGET', record.claims, id)
  return packed and cmsgpack.unpack(packed)
end

local function write_claim(record, claim)
  record.last = math.max(record.last, claim.expires)
  call('HSET', record.claims, claim.id, cmsgpack.pack(claim))
  call('ZADD', claim.fence == 0 and record.waiting or record.held, claim.expires, claim.id)
end

local function enqueue(record, claim)
  write_claim(record, claim)
  call('ZADD', record.queue, (65535 - claim.priority) * 137438953472 + claim.arrival, claim.id)
end

local function leave_queue(record, claim)
  call('ZREM', record.waiting, claim.id)
  call('ZREM', record.queue, claim.id)
end

local function hold(record, claim)
  write_claim(record, claim)
  call('ZADD', record.limits, claim.limit, claim.id)
  record.weight = record.weight + claim.weight
end

local function remove(record, claim)
  call('HDEL', record.claims, claim.id)
  if claim.fence == 0 then
    leave_queue(record, claim)
  else
    call('ZREM', record.held, claim.id)
    call('ZREM', record.limits, claim.id)
    record.weight = record.weight - claim.weight
  end
end

local function head_of(record)
  local id = call('ZRANGE', record.queue, 0, 0)[1]
  return id and read_claim(record, id)
end

local function read_record(key)
  local record = { key = key, fence = 0, arrivals = 0, weight = 0, last = 0, answered = {}, text = texts[key] }
  record.claims, record.held, record.limits, record.waiting, record.queue = keys_of(key)
  if not record.text then return record end
  if is_lone(record.text) then
    record.lone = read_lone(record.text)
    record.fence = record.lone.fence
  elseif byte(record.text) == 115 and #record.text == 33 then
    record.fence, record.arrivals, record.weight, record.last = cut('<dddd', record.text, 2)
  else
    error('not the text of a lock')
  end
  return record
end

-- Deletes sets that the text does not count: those of a record that expired, lost a set, or lost its text. Only sets of ours
-- are deleted: a key of another type raises an error.
local function begin_again(record)
  if call('EXISTS', keys_of(record.key)) > 0 then
    call('HLEN', record.claims)
    for _, set in ipairs({ record.held, record.limits, record.waiting, record.queue }) do call('ZCARD', set) end
    call('DEL', keys_of(record.key))
  end
  record.arrivals, record.weight, record.last = 0, 0, 0
end

-- A lone claim moves into sets, where it stays.
local function spread(record)
  local is_current = not record.lone and record.last > now and is_whole(keys_of(record.key))
  if not is_current then begin_again(record) end
  if record.lone then
    record.arrivals = 1
    hold(record, record.lone)
  end
end

local function write_record(record)
  local key = record.key
  if call('HLEN', record.claims) == 0 then
    texts[key] = nil
    -- These are empty as well. Where a cluster moves the partition, the command is refused and nothing is lost.
    redis.pcall('DEL', keys_of(key))
  else
    texts[key] = 's' .. pack('<dddd', record.fence, record.arrivals, record.weight, record.last)
    for _, set in ipairs({ keys_of(key) }) do call('PEXPIREAT', set, record.last + 1000) end
  end
end
`;
