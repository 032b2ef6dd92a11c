import { withConstants } from "./script-constants.ts";
import { CAREFUL } from "./script-rules.ts";

/**
 * The record machine of `src/core/record.ts` in Lua, applied to a batch of operations inside Redis. A differential test
 * plays the same random histories to both and compares every answer.
 *
 * KEYS[1]      the locks of the partition, a hash by key: "<partition>:locks". Its field without a name is the mark: the highest
 *              fence that was ever given out there
 * ARGV[1]      JSON: [the most claims that may wait for one key, the beginning of the channels that other owners listen to,
 *              [the owners whose grants come back in the reply]]. It is the same in all calls of a store, and seldom looked at
 * ARGV[2]      the highest fence that this client has seen, in 16 digits: what the server has lost of its own, it may get
 *              back from here; and the number of this call
 * ARGV[3]      the operations, one after the other. Each is its verb, a digit; three numbers, of two characters each: the
 *              place in ARGV of what it asks for, the length of the lock's key and that of the claim's name; the key;
 *              and the name: the claim's id and its token, each with a line break. The verbs, and what they ask for:
 *                1 acquire, 5 try   terms
 *                2 renew            a ttl
 *                3 release          nothing, and an administrator's has no token
 *                4 look             how many claims to show; an empty id and token
 * ARGV[4..]    what the operations ask for, once where it is the same. Terms are JSON, [ttlMs, weight, limit, priority,
 *              owner, info, application]; a limit of 0 is none, because not every client reads integers near 2^53 exactly
 *
 * Replies one text of lines: ARGV[2]; what each operation came to, one after the other; and the grants to the own owners,
 * each as the number of an operation on the key, owner, id and fence. What an operation comes to, a line each:
 *   1, fence, acquiredAtMs, expiresInMs   held
 *   6                                     held, as the last claim before this is, with a fence that is one higher
 *   2, expiresInMs, retryInMs, fence      waiting; the fence of the latest grant
 *   3, reason                             refused: 1 contended, 2 queue full, 3 id reused
 *   4                                     gone
 *   5, owner                              taken over by that owner
 *   0 or 1                                whether a release removed the claim
 *   -1, text                              failed alone: a key of this lock is not what Holdfast wrote, or out of reach for the user
 *   fence, heldCount, heldWeight, waitingCount, and how many held and waiting ones follow, each of them id, weight, limit,
 *     priority, ttlMs, owner, info, application, expiresInMs, fence and acquiredAtMs              look
 *
 * It is all made to be cheap. The operations are no JSON and no argument each, because taking those apart costs as much as all
 * the rest. The reply is no list, of which Redis looks at each element in eight ways. What calls a function of C, such as
 * string.sub, costs a quarter of a GET, and to format a number as much as one. All locks are fields of one hash because a
 * field more in a command costs a fifth of a command more: the whole call reads once, and writes at most twice.
 *
 * A lock is a text in one of two forms. Held by one claim alone, it is that claim: "h", three numbers (fence,
 * time of the grant, expiry), its name, a line break and its terms, and where several servers agreed upon the fence another
 * line with who proposed it (`confirm-script.ts` has the rules). Otherwise it
 * says that the record is spread over a hash of claims and sorted sets by expiry, limit and turn, of which each operation
 * touches O(log n): "s" and four numbers (fence, arrivals, weight of the held, last expiry). A record that was spread
 * stays so until nobody has or wants the key, so a lone holder is one that was never taken over.
 *
 * Fields do not expire by themselves. A lock that was left to expire is overwritten by whoever wants it next; for those that
 * nobody wants, one operation in SWEEP_EVERY makes its call look at some at random, and at more as long as many of them are dead.
 */
export const LUA = `
local call, byte, sub, format, pack, unpack_one = redis.call, string.byte, string.sub, string.format, struct.pack, struct.unpack
local time = call('TIME')
local us = time[1] * 1000000 + time[2]
local now = (us - us % 1000) / 1000

-- Without a variable of the outside in it: each would cost as much as a small command, at every call.
${CAREFUL}
local operations, at, n = ARGV[3], 1, 0
local keys, names, verbs, places = { '' }, {}, {}, {}
while at <= #operations do
  local code, asks1, asks2, key1, key2, name1, name2 = byte(operations, at, at + 6)
  local key_ends = at + (key1 - ZERO) * 64 + key2 - ZERO + 6
  local name_ends = key_ends + (name1 - ZERO) * 64 + name2 - ZERO
  n = n + 1
  verbs[n], places[n] = code - ZERO, (asks1 - ZERO) * 64 + asks2 - ZERO
  keys[n + 1], names[n] = sub(operations, at + 7, key_ends), sub(operations, key_ends + 1, name_ends)
  at = name_ends + 1
end
local texts = call('HMGET', KEYS[1], unpack(keys))

-- The highest fence of this partition so far, whether or not its record still exists, or what the client has seen of a server that
-- was failed over from; and whether a higher one is given out here.
local mark, gave
-- What was asked for last, what all that ask for it have in common, and whether the last claim in the reply was granted just that.
local known_asks, ttl, times, follows
-- What is to be written: locks that are released, and fields with their texts; and how many.
local gone, goes, kept, keeps = {}, 0, {}, 0
local answers, careful, failure = { ARGV[2] }, nil, nil

for i = 1, n do
  local verb, key, name, asks, text = verbs[i], keys[i + 1], names[i], ARGV[places[i]], texts[i + 1]
  local answer

  -- What most operations are: a key that nobody has is acquired, or its only holder, who is named in full, stays or goes. Texts
  -- are compared and cut here, not taken apart. Where it is not that simple nothing is done, and there is no answer yet.
  if texts[key] or verb == LOOK then
    -- What was read of that key is no longer so, or it takes more than a text.
    answer = nil
  elseif verb == ACQUIRE or verb == TRY then
    if not text and not mark then
      local last = tonumber(texts[1] or 0)
      mark = last and last < UNLIMITED and math.max(last, tonumber(sub(ARGV[2], 1, 16)))
    end
    if not text and mark then
      if asks ~= known_asks then
        known_asks, ttl, follows = asks, tonumber(string.match(asks, '^%[(%d+)')), false
        times = pack('<dd', now, now + ttl)
      end
      mark, gave = us > mark and us or mark + 1, true
      keeps = keeps + 2
      kept[keeps - 1], kept[keeps] = key, 'h' .. pack('<d', mark) .. times .. name .. asks
      if follows then
        answer = '6'
      else
        -- In two parts, because %d knows no more than 31 bits on some machines, and %.0f is twice as dear.
        local low, low_now = mark % HALF, now % HALF
        answer = format('1\\n%d%08d\\n%d%08d\\n%d', (mark - low) / HALF, low, (now - low_now) / HALF, low_now, ttl)
      end
      follows = true
    end
  -- A text of the other form is shorter, and nobody but the claim itself knows its name.
  elseif text and #text > SPREAD_LENGTH and sub(text, 26, 25 + #name) == name then
    local expires = unpack_one('<d', text, 18)
    if expires > now then
      if verb == RELEASE then
        goes = goes + 1
        gone[goes], answer = key, '1'
      else
        follows = false
        local until_ms = math.max(expires, now + (asks or string.match(text, '^%[(%d+)', 26 + #name)))
        if until_ms > expires then
          keeps = keeps + 2
          kept[keeps - 1], kept[keeps] = key, sub(text, 1, 17) .. pack('<d', until_ms) .. sub(text, 26)
        end
        local fence, acquired = unpack_one('<dd', text, 2)
        answer = format('1\\n%.0f\\n%.0f\\n%d', fence, acquired, until_ms - now)
      end
    end
  end

  if not answer then
    careful = careful or make_careful(us, now)
    careful.mark, careful.gave = mark, gave
    local ok, result = pcall(careful.apply, i, verb, key, name, asks, gone, kept)
    mark, gave, follows = careful.mark, careful.gave, false
    gone, goes, kept, keeps = {}, 0, {}, 0
    answer = ok and result or careful.answer_to(i, result, key, answers)
    if not answer then
      failure = careful.text_of(result)
      break
    end
  end
  answers[i + 1], texts[key] = answer, true
end

-- What was done is written down in any case: a fence that was given out, and how many hold a lock. A server that is out of memory
-- refuses a script's first write and no other: so what takes no memory comes first.
if goes > 0 then call('HDEL', KEYS[1], unpack(gone)) end
if gave then
  keeps = keeps + 2
  kept[keeps - 1], kept[keeps] = '', format('%08d%08d', (mark - mark % HALF) / HALF, mark % HALF)
end
if keeps > 0 then call('HSET', KEYS[1], unpack(kept)) end
if careful then careful.save() end
if us % SWEEP_EVERY < n then
  careful = careful or make_careful(us, now)
  careful.sweep()
end
if careful then careful.tell(answers) end
-- Raised once more, the code would stand behind another one.
if failure then return redis.error_reply(failure) end
return table.concat(answers, '\\n')
`;

export const SCRIPT = withConstants(LUA);
