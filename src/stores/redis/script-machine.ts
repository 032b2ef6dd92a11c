/** The part of the script that has all the rules, for records with several claims. It is made when first needed. */
export const MACHINE = `
local machine, granted, records = { wrote = false }, {}, {}
local asked -- the token whose caller learns of a grant from the answer
local settings = cjson.decode(ARGV[1])

local function fits(record, claim)
  local tightest = call('ZRANGE', record.limits, 0, 0, 'WITHSCORES')[2]
  local limit = tightest and math.min(claim.limit, tonumber(tightest)) or claim.limit
  return record.weight + claim.weight <= limit
end

local function stamp(record, claim)
  record.fence = next_fence(record.fence)
  claim.fence, claim.acquired, claim.agreed_by = record.fence, now, nil
end

local function grant_head(record)
  local head = head_of(record)
  while head and fits(record, head) do
    leave_queue(record, head)
    stamp(record, head)
    hold(record, head)
    if head.token ~= asked then granted[#granted + 1] = { record, head } end
    head = head_of(record)
  end
end

local function settle(record)
  for _, by_expiry in ipairs({ record.held, record.waiting }) do
    for _, id in ipairs(call('ZRANGEBYSCORE', by_expiry, '-inf', now)) do remove(record, read_claim(record, id)) end
  end
  grant_head(record)
end

local function answer_of(record, claim)
  if claim.fence ~= 0 then return held(claim.fence, claim.acquired, claim.expires - now) end
  local retry = tonumber(call('ZRANGE', record.held, 0, 0, 'WITHSCORES')[2])
  local head = head_of(record)
  if head.id ~= claim.id then retry = math.max(retry, head.expires) end
  return format('2\\n%.0f\\n%.0f\\n%.0f', claim.expires - now, retry - now, record.fence)
end

local function acquire_again(record, claim, token, wait, terms)
  if claim.weight ~= terms[2] or claim.limit ~= terms[3] or claim.priority ~= terms[4] then return '3\\n3' end
  if claim.token ~= token then
    if claim.fence == 0 and not wait then return '3\\n1' end
    claim.token = token
    if claim.fence ~= 0 then
      stamp(record, claim)
      claim.promised = claim.expires
    end
  end
  claim.ttl, claim.owner, claim.info, claim.application = terms[1], terms[5], terms[6], terms[7]
  claim.expires = math.max(claim.expires, now + terms[1])
  write_claim(record, claim)
  if claim.fence ~= 0 or wait then return answer_of(record, claim) end
  remove(record, claim)
  grant_head(record)
  return '3\\n1'
end

local rules = {}

function rules.acquire(record, id, token, terms_text, verb)
  local wait, terms = verb == 'acquire', terms_of(terms_text)
  local claim = read_claim(record, id)
  if claim then return acquire_again(record, claim, token, wait, terms) end
  enqueue(record, { id = id, token = token, ttl = terms[1], weight = terms[2], limit = terms[3], priority = terms[4], owner = terms[5],
    info = terms[6], application = terms[7], arrival = record.arrivals, fence = 0, acquired = 0, expires = now + terms[1], promised = 0 })
  record.arrivals = record.arrivals + 1
  grant_head(record)
  claim = read_claim(record, id)
  if claim.fence == 0 then
    local reason = not wait and '3\\n1' or call('ZCARD', record.queue) > settings[1] and '3\\n2'
    if reason then
      remove(record, claim)
      return reason
    end
  end
  return answer_of(record, claim)
end

rules.try = rules.acquire

function rules.renew(record, id, token, ttl)
  local claim = read_claim(record, id)
  if not claim then return '4' end
  if token ~= '' and token ~= claim.token then return '5\\n' .. claim.owner end
  local expires = now + (ttl or claim.ttl)
  if expires > claim.expires then
    claim.expires = expires
    write_claim(record, claim)
  end
  return answer_of(record, claim)
end

function rules.release(record, id, token)
  local claim = read_claim(record, id)
  if not claim or (token ~= '' and token ~= claim.token) then return '0' end
  if token ~= '' and claim.promised > now then
    claim.token, claim.expires = "''", claim.promised
    write_claim(record, claim)
  else
    remove(record, claim)
    grant_head(record)
  end
  return '1'
end

function rules.confirm(record, id, token, terms)
  local claim = read_claim(record, id)
  if not agree(claim, token, terms) then return '0' end
  record.fence = math.max(record.fence, claim.fence)
  write_claim(record, claim)
  return '1'
end

local function show(claims, most, is_before, lines)
  table.sort(claims, is_before)
  for i = 1, math.min(most, #claims) do
    local claim = claims[i]
    local limit = claim.limit == UNLIMITED and 0 or claim.limit
    lines[#lines + 1] = table.concat({ claim.id, claim.weight, limit, claim.priority, claim.ttl, claim.owner, claim.info or '',
      claim.application or '', format('%.0f\\n%.0f\\n%.0f', claim.expires - now, claim.fence, claim.acquired) }, '\\n')
  end
end

local function look(key, most)
  local record = records[key] or read_record(key)
  local held_claims, waiting, claims, weight = {}, {}, {}, 0
  if records[key] or (record.text and not record.lone and is_whole(keys_of(key))) then
    for _, packed in ipairs(call('HVALS', record.claims)) do claims[#claims + 1] = cmsgpack.unpack(packed) end
  else
    claims[1] = record.lone
  end
  for _, claim in ipairs(claims) do
    if claim.expires > now then table.insert(claim.fence == 0 and waiting or held_claims, claim) end
  end
  for _, claim in ipairs(held_claims) do weight = weight + claim.weight end
  local lines = { table.concat({ format('%.0f', #claims > 0 and record.fence or 0), #held_claims, weight, #waiting,
    math.min(most, #held_claims), math.min(most, #waiting) }, '\\n') }
  show(held_claims, most, function(a, b) return a.fence < b.fence end, lines)
  show(waiting, most, function(a, b)
    if a.priority ~= b.priority then return a.priority > b.priority end
    return a.arrival < b.arrival
  end, lines)
  return table.concat(lines, '\\n')
end

function machine.apply(n, verb, key, name, terms)
  if verb == 'look' then return look(key, tonumber(terms)) end
  if not mark then error('not the mark of fences') end
  local id, token = match(name, '^([^\\n]*)\\n([^\\n]*)')
  local record = records[key] or read_record(key)
  if not records[key] then spread(record) end
  record.n, records[key], texts[key] = n, record, 's'
  table.insert(record.answered, n)
  asked = token
  settle(record)
  local answer = rules[verb](record, id, token, terms, verb)
  machine.wrote = true
  return answer
end

-- A record in an unknown state is not written. Returns the operations that were to be written with it.
function machine.give_up(key)
  local record = records[key]
  if not record then return {} end
  records[key], texts[key] = nil, record.text
  return record.answered
end

function machine.save()
  for _, record in pairs(records) do write_record(record) end
end

-- Adds the grants to own owners to the reply and publishes the others.
function machine.tell()
  local own = {}
  for _, owner in ipairs(settings[3]) do own[owner] = true end
  for _, grant in ipairs(granted) do
    local record, claim = unpack(grant)
    local fence = format('%.0f', claim.fence)
    if own[claim.owner] then
      reply[#reply + 1] = table.concat({ record.n, claim.owner, claim.id, fence }, '\\n')
    else
      -- A user may lack the right to it. The grant stands, and the waiter learns of it at a heartbeat.
      redis.pcall('PUBLISH', settings[2] .. claim.owner, cjson.encode({ record.key, claim.id, fence }))
    end
  end
end

return machine
`;
