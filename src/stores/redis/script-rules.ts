import { IS_WHOLE, KEYS_OF } from "./script-constants.ts";

/**
 * The part of the script that knows all the rules. `script.ts` leaves to it what is not simple, and makes it when it is first needed:
 * to make its functions costs more than a simple operation does.
 */
export const CAREFUL = `
local function make_careful(us, now)
  local call, byte, sub, match, format = redis.call, string.byte, string.sub, string.match, string.format
  local partition = sub(KEYS[1], 1, -7)
  local careful, granted = {}, {}
  local rules

  local function keys_of(key)
    return ${KEYS_OF}
  end

  local decoded
  local function settings()
    decoded = decoded or cjson.decode(ARGV[1])
    return decoded
  end

  -- Above every fence of this partition so far, above what the client has seen, and at least the time.
  local function next_fence(last)
    local mark = careful.mark or math.max(tonumber(call('HGET', KEYS[1], '') or 0), tonumber(sub(ARGV[2], 1, 16)))
    if mark >= UNLIMITED then error('not the mark of fences') end
    careful.mark, careful.gave = math.max(us, mark + 1, last + 1), true
    return careful.mark
  end

  -- What a claim is asked for with: ttl, weight, limit, priority, owner, info, application. Most of a batch share one.
  local terms_by_text = {}
  local function terms_of(text)
    local terms = terms_by_text[text]
    if not terms then
      terms = cjson.decode(text)
      if terms[3] == 0 then terms[3] = UNLIMITED end
      terms[6], terms[7] = terms[6] or '', terms[7] or ''
      terms_by_text[text] = terms
    end
    return terms
  end

  local function lone_text(fence, acquired, expires, id, token, terms)
    return 'h' .. struct.pack('<ddd', fence, acquired, expires) .. id .. '\\n' .. token .. '\\n' .. terms
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
      if call('ZCARD', record.queue_key) > settings()[MAX_WAITERS] then
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

    ${IS_WHOLE}

    local function look(record, most)
      local held, waiting = {}, {}
      local claims = record.lone and { record.lone } or {}
      if record.fence > 0 and not record.lone and (records[record.key] or is_whole(keys_of(record.key))) then
        for _, text in ipairs(call('HVALS', record.claims_key)) do claims[#claims + 1] = unpack(text) end
      end
      for _, claim in ipairs(claims) do
        if claim[EXPIRES] > now then table.insert(claim[FENCE] == 0 and waiting or held, claim) end
      end
      local shown_held, weight = show(held, most, by_fence)
      local shown_waiting = show(waiting, most, by_turn)
      local fence = #claims > 0 and record.fence or 0
      local seen = { fence, #held, weight, #waiting, #shown_held, #shown_waiting }
      for _, shown in ipairs({ shown_held, shown_waiting }) do
        for _, claim in ipairs(shown) do
          for _, field in ipairs(claim) do seen[#seen + 1] = field end
        end
      end
      return seen
    end

    -- Records, from either form. Whatever changes one makes it a spread one.

    local function load(key, n)
      local record = records[key]
      if record then return record end
      record = {
        key = key, n = n, fence = 0, arrivals = 0, weight = 0, last = 0, answered = {},
      }
      record.claims_key, record.held_key, record.limits_key, record.waiting_key, record.queue_key = keys_of(key)
      local text = call('HGET', KEYS[1], key)
      if text and byte(text) == LONE then
        local fence, acquired, expires = struct.unpack('<ddd', text, 2)
        local id, token, terms_text, agreed_by = read_lone(text)
        local terms = terms_of(terms_text)
        record.fence, record.arrivals = fence, 1
        record.lone = { id, token, terms[2], terms[3], terms[4], terms[1], terms[5], terms[6], terms[7],
          0, fence, acquired, expires, 0, agreed_by }
      elseif text then
        if byte(text) ~= SPREAD or #text ~= SPREAD_LENGTH then error('not the text of a lock') end
        record.fence, record.arrivals, record.weight, record.last = struct.unpack('<dddd', text, 2)
      end
      return record
    end

    -- Whether the sets are not what the field says. Redis drops the sets of a record that is over, at a time of its own, but not the
    -- field; and it may evict any of them. Where the field was lost or could not be written, sets are left that the claim which then
    -- came alone does not count. Of a partition that is just moved to another server some sets may not be there yet: then a command
    -- with several keys is refused.
    local function is_over(record)
      if record.lone then return call('EXISTS', keys_of(record.key)) > 0 end
      return record.last <= now or not is_whole(keys_of(record.key))
    end

    -- Only sets of ours are deleted: a key of another type raises an error.
    local function begin_anew(record)
      if call('EXISTS', keys_of(record.key)) > 0 then
        local claims, held, limits, waiting, queue = keys_of(record.key)
        call('HLEN', claims)
        for _, set in ipairs({ held, limits, waiting, queue }) do call('ZCARD', set) end
        call('DEL', keys_of(record.key))
      end
      record.arrivals, record.weight, record.last = record.lone and 1 or 0, 0, 0
    end

    local verbs = { [ACQUIRE] = acquire, [RENEW] = renew, [RELEASE] = release, [TRY] = acquire }
    local rules = {}

    function rules.apply(n, verb, key, id, token, asks)
      local record = load(key, n)
      if verb == LOOK then return look(record, tonumber(asks)) end
      if not records[key] and is_over(record) then begin_anew(record) end
      if record.lone then
        hold(record, record.lone)
        record.lone = nil
      end
      records[key] = record
      table.insert(record.answered, n)
      asked = token
      return verbs[verb](record, id, token, asks, verb)
    end

    -- What is not known to be whole is not written. Returns which operations were to be written with it.
    function rules.give_up(key)
      local record = records[key]
      records[key] = nil
      return record and record.answered or {}
    end

    function rules.is_loaded(key) return records[key] ~= nil end

    function rules.save()
      for _, record in pairs(records) do
        if call('HLEN', record.claims_key) == 0 then
          call('HDEL', KEYS[1], record.key)
          -- Empty as well, so there is nothing to lose where a partition is moved, and this is refused.
          redis.pcall('DEL', keys_of(record.key))
        else
          local text = 's' .. struct.pack('<dddd', record.fence, record.arrivals, record.weight, record.last)
          call('HSET', KEYS[1], record.key, text)
          for _, key in ipairs({ keys_of(record.key) }) do call('PEXPIREAT', key, record.last + SLACK_MS) end
        end
      end
    end

    -- Adds to the reply, behind its last line, what its own owners are granted, and tells the others. Returns which line is the last now.
    function rules.tell(reply, last)
      local own = {}
      for _, owner in ipairs(settings()[OWNERS]) do own[owner] = true end
      for _, grant in ipairs(granted) do
        local record, owner, id, fence = grant[1], grant[2], grant[3], format('%.0f', grant[4])
        if own[owner] then
          last = last + 1
          reply[last] = table.concat({ record.n, owner, id, fence }, '\\n')
        else
          -- A user may lack the right to it. What was done stays done, and the waiter learns of it at a heartbeat.
          redis.pcall('PUBLISH', settings()[CHANNELS] .. owner, cjson.encode({ record.key, id, fence }))
        end
      end
      return last
    end

    return rules
  end

  -- A key that nobody has, or that one claim holds alone: what most locks are all their life. nil when it is not that
  -- simple.

  local function apply_alone(key, verb, id, token, asks)
    local text = call('HGET', KEYS[1], key)
    local fence, acquired, expires
    if text then
      if byte(text) ~= LONE then return nil end
      fence, acquired, expires = struct.unpack('<ddd', text, 2)
      if expires <= now then
        if verb ~= ACQUIRE and verb ~= TRY then call('HDEL', KEYS[1], key) end
        text = nil
      end
    end
    if verb == ACQUIRE or verb == TRY then
      if not text then
        local ttl = tonumber(match(asks, '^%[(%d+)'))
        fence = next_fence(0)
        call('HSET', KEYS[1], key, lone_text(fence, now, now + ttl, id, token, asks))
        return 1, fence, now, ttl
      end
      local held_id, _, terms_text = read_lone(text)
      if verb == ACQUIRE or held_id == id then return nil end
      local holder, asking = terms_of(terms_text), terms_of(asks)
      if holder[2] + asking[2] <= math.min(holder[3], asking[3]) then return nil end
      return 3, 1
    end
    local nothing = verb == RELEASE and 0 or 4
    if not text then return nothing end
    local held_id, held_token, terms_text, agreed_by = read_lone(text)
    if held_id ~= id then return nothing end
    if token ~= '' and token ~= held_token then
      if verb == RENEW then return 5, terms_of(terms_text)[OWNER_TERM] end
      return nothing
    end
    if verb == RELEASE then
      call('HDEL', KEYS[1], key)
      return 1
    end
    local until_ms = now + (asks or match(terms_text, '^%[(%d+)'))
    if until_ms > expires then
      expires = until_ms
      local rest = agreed_by and terms_text .. '\\n' .. agreed_by or terms_text
      call('HSET', KEYS[1], key, lone_text(fence, acquired, expires, id, held_token, rest))
    end
    return 1, fence, acquired, expires - now
  end

  local function lines_of(first, ...)
    local lines = type(first) == 'table' and first or { first, ... }
    for i, line in ipairs(lines) do
      if type(line) == 'number' then lines[i] = format('%.0f', line) end
    end
    return table.concat(lines, '\\n')
  end

  -- The answer to an operation, which sees what those before it did: also what was not written yet.
  function careful.apply(n, verb, key, name, asks, gone, goes, kept, keeps)
    careful.owes = goes + keeps > 0
    if goes > 0 then call('HDEL', KEYS[1], unpack(gone, 1, goes)) end
    if keeps > 0 then call('HSET', KEYS[1], unpack(kept, 3, keeps + 2)) end
    careful.owes = false
    local id, token = match(name, '^([^\\n]*)\\n([^\\n]*)')
    if verb ~= LOOK and not (rules and rules.is_loaded(key)) then
      local first, second, third, fourth = apply_alone(key, verb, id, token, asks)
      if first then
        careful.alone = true
        return lines_of(first, second, third, fourth)
      end
    end
    rules = rules or make_rules()
    return lines_of(rules.apply(n, verb, key, id, token, asks))
  end

  -- Versions differ in whether they raise a table or a text, and where in the text the code stands.
  function careful.text_of(raised)
    local text = type(raised) == 'table' and raised.err or tostring(raised)
    text = string.gsub(text, '^@?user_script: ?%d+: ', '')
    text = string.gsub(text, '^%-', '')
    return text
  end

  -- The answer to an operation that raised this. A server that cannot write says so at the first write, before anything
  -- is done: then there is no answer, and the call fails. But one key that is not a lock, or that the user has no right to,
  -- must not keep the batch from being finished, when other locks have been changed already. Nor is there an answer where what
  -- was answered before it could not be written.
  function careful.answer_to(n, raised, key, answers, before)
    local unwritten = rules and rules.give_up(key) or {}
    local text = careful.text_of(raised)
    local code = match(text, '^(%u%u+) ')
    local is_of_one_key = not code or code == 'WRONGTYPE' or code == 'NOPERM' or code == 'ERR'
    if careful.owes or (n == 1 and not is_of_one_key) then return nil end
    local answer = '-1\\n' .. string.gsub(text, '%c', ' ')
    for _, other in ipairs(unwritten) do answers[before + other] = answer end
    return answer
  end

  function careful.save()
    if rules then rules.save() end
  end

  function careful.tell(reply, last)
    if #granted > 0 then return rules.tell(reply, last) end
    return last
  end

  return careful
end
`;
