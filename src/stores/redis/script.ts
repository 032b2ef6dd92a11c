import { withConstants } from "./script-constants.ts";
import { CAREFUL } from "./script-rules.ts";

/**
 * The record machine of `src/core/record.ts` in Lua, applied to a batch of operations inside Redis. A differential test
 * plays the same random histories to both and compares every answer.
 *
 * KEYS[1]      the partition's fence, the highest that was ever given out there: "<partition>:fence"
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
 * string.sub, costs a quarter of a GET, and to format a number as much as one.
 *
 * A lock key is a string in one of two forms. Held by one claim alone, it is that claim: "h", three numbers (fence,
 * time of the grant, expiry), its name, a line break and its terms, and where several servers agreed upon the fence another
 * line with who proposed it (`confirm-script.ts` has the rules). Otherwise it
 * says that the record is spread over a hash of claims and sorted sets by expiry, limit and turn, of which each operation
 * touches O(log n): "s" and four numbers (fence, arrivals, weight of the held, last expiry). A record that was spread
 * stays so until nobody has or wants the key, so a lone holder is one that was never taken over.
 */
export const LUA = `
local call, try, byte, sub, format, pack = redis.call, redis.pcall, string.byte, string.sub, string.format, struct.pack
local time = call('TIME')
local us = time[1] * 1000000 + time[2]
local now = (us - us % 1000) / 1000
local locks = sub(KEYS[1], 1, -6) .. 'lock:'

-- Without a variable of the outside in it: each would cost as much as a small command, at every call.
${CAREFUL}
-- The highest fence of this partition so far, whether or not its record still exists, or what the client has seen of a server that
-- was failed over from; and whether a higher one is given out here.
local mark, gave
-- What was asked for last, what all that ask for it have in common, and whether the last claim in the reply was granted just that.
local known_asks, ttl, kept, times, follows
-- Locks that are released, to be deleted at once; and those of which Redis does not tell yet what was done here.
local gone, touched = {}, {}
local answers, careful, failure = { ARGV[2] }, nil, nil
local operations, at, n = ARGV[3], 1, 0

while at <= #operations and not failure do
  local code, asks1, asks2, key1, key2, name1, name2 = byte(operations, at, at + 6)
  local key_ends = at + (key1 - ZERO) * 64 + key2 - ZERO + 6
  local name_ends = key_ends + (name1 - ZERO) * 64 + name2 - ZERO
  local verb, asks = code - ZERO, ARGV[(asks1 - ZERO) * 64 + asks2 - ZERO]
  local lock_key, name = locks .. sub(operations, at + 7, key_ends), sub(operations, key_ends + 1, name_ends)
  local is_simple, answer = verb ~= LOOK and not touched[lock_key], nil
  n, at = n + 1, name_ends + 1

  -- What most operations are: a key that nobody has is acquired, or its only holder, who is named in full, stays or goes. Texts
  -- are compared and cut here, not taken apart. Where it is not that simple nothing is done, and there is no answer yet.
  if is_simple and (verb == ACQUIRE or verb == TRY) then
    if not mark then
      local last = tonumber(try('GET', KEYS[1]) or 0)
      mark = last and math.max(last, tonumber(sub(ARGV[2], 1, 16)))
    end
    if mark then
      if asks ~= known_asks then
        known_asks, ttl, follows = asks, tonumber(string.match(asks, '^%[(%d+)')), false
        kept, times = format('%d', ttl + 1000), pack('<dd', now, now + ttl)
      end
      local fence = us > mark and us or mark + 1
      -- To write only where nothing is tells whether there was anything.
      local written = try('SET', lock_key, 'h' .. pack('<d', fence) .. times .. name .. asks, 'NX', 'PX', kept)
      if written and not written.err then
        if follows then
          answer = '6'
        else
          -- In two parts, because %d knows no more than 31 bits on some machines, and %.0f is twice as dear.
          local low, low_now = fence % HALF, now % HALF
          answer = format('1\\n%d%08d\\n%d%08d\\n%d', (fence - low) / HALF, low, (now - low_now) / HALF, low_now, ttl)
        end
        mark, gave, follows = fence, true, true
      end
    end
  elseif is_simple then
    local text = try('GET', lock_key)
    -- A text of the other form is shorter.
    if type(text) == 'string' and #text > 33 and sub(text, 26, 25 + #name) == name then
      local form, fence, acquired, expires = struct.unpack('<Bddd', text)
      is_simple = form == LONE and expires > now
      if is_simple and verb == RELEASE then
        gone[#gone + 1], touched[lock_key] = lock_key, true
        answer = '1'
      elseif is_simple then
        follows = false
        local until_ms = math.max(expires, now + (asks or string.match(text, '^%[(%d+)', 26 + #name)))
        text = sub(text, 1, 17) .. pack('<d', until_ms) .. sub(text, 26)
        if until_ms == expires or not try('SET', lock_key, text, 'PX', until_ms - now + 1000).err then
          answer = format('1\\n%.0f\\n%.0f\\n%d', fence, acquired, until_ms - now)
        end
      end
    end
  end

  if not answer then
    careful = careful or make_careful(us, now, locks)
    careful.mark, careful.gave = mark, gave
    local ok, result = pcall(careful.apply, n, verb, lock_key, name, asks, gone)
    mark, gave, follows, gone, touched[lock_key] = careful.mark, careful.gave, false, {}, true
    answer = ok and result or careful.answer_to(n, result, lock_key)
    if not answer then failure = careful.text_of(result) end
  end
  answers[n + 1] = answer
end

-- What was done is written down in any case: a fence that was given out, and how many hold a lock.
if #gone > 0 then
  local deleted = try('DEL', unpack(gone))
  if type(deleted) == 'table' then failure = make_careful(us, now, locks).text_of(deleted) end
end
if careful then careful.save() end
if gave then call('SET', KEYS[1], format('%d%08d', (mark - mark % HALF) / HALF, mark % HALF)) end
if careful then careful.tell(answers) end
-- Raised once more, the code would stand behind another one.
if failure then return redis.error_reply(failure) end
return table.concat(answers, '\\n')
`;

export const SCRIPT = withConstants(LUA);
