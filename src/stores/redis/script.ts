import { withConstants } from "./script-constants.ts";
import { MIXED } from "./script-mixed.ts";
import { CAREFUL } from "./script-rules.ts";
import { SWEEP } from "./script-sweep.ts";
import { UNIFORM } from "./script-uniform.ts";

/**
 * The record machine of `src/record/record.ts` in Lua, applied to a batch of operations inside Redis. A differential test
 * plays the same random histories to both and compares every answer.
 *
 * KEYS[1]      the locks of the partition, a hash by key: "<partition>:locks". Its field without a name is the mark: the highest
 *              fence that was ever given out there
 * ARGV[1]      JSON: [the most claims that may wait for one key, the beginning of the channels that other owners listen to,
 *              [the owners whose grants come back in the reply]]. It is the same in all calls of a store, and seldom looked at
 * ARGV[2]      the highest fence that this client has seen, in 16 digits: what the server has lost of its own, it may get
 *              back from here; and the number of this call
 * ARGV[3]      how long the keys and names of the operations are, as struct.unpack is told to cut them: "c5c7c26c26"
 * ARGV[4]      the operations: how many they are, and how many runs of neighbours that ask the same; the runs; the locks' keys; and
 *              the claims' names, which are an id and a token, each with a line break. A run is its verb, a digit, the place in ARGV
 *              of what it asks for, and how many operations it has. Numbers have two characters each. The verbs, and what they ask for:
 *                1 acquire, 5 try   terms
 *                2 renew            a ttl
 *                3 release          nothing, and an administrator's has no token
 *                4 look             how many claims to show; an empty id and token
 * ARGV[5..]    what the operations ask for, once where it is the same. Terms are JSON, [ttlMs, weight, limit, priority,
 *              owner, info, application], without the last two where both are empty; a limit of 0 is none, because not every client
 *              reads integers near 2^53 exactly
 *
 * Replies one text of lines: ARGV[2]; what each operation came to, one after the other; and the grants to the own owners,
 * each as the number of an operation on the key, owner, id and fence. What an operation comes to, a line each:
 *   1, fence, acquiredAtMs, expiresInMs   held
 *   6                                     held, as the last claim before this is
 *   7                                     this and all that follow came to what the first did; nothing comes after it
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
 * the rest; one function cuts all of them. The reply is no list, of which Redis looks at each element in eight ways. What calls a
 * function of C, such as string.sub, costs a quarter of a GET, and to format a number as much as one. Each character of each text that
 * Lua gets or makes costs eleven instructions, so texts are few and short. A list that grows costs more than what is put into it.
 * All locks are fields of one hash because a field more in a command costs a fifth of a command more: the whole call reads once, and
 * writes at most twice.
 *
 * A call goes one of two ways. Where all of it asks the same and is simple, as it mostly is, that is `script-uniform.ts`; otherwise its
 * operations are gone through one by one, in `script-mixed.ts`, and what is not simple is left to `script-rules.ts`. Fences
 * have to grow from grant to grant of one key, so all who acquire in one call what nobody had get the same.
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
local call, byte, sub, cut = redis.call, string.byte, string.sub, struct.unpack
local time = call('TIME')
local us = time[1] * 1000000 + time[2]
local now = (us - us % 1000) / 1000
local operations = ARGV[4]
local n1, n2, runs1, runs2, code, asks1, asks2 = byte(operations, 1, 7)
local n, runs, verb = (n1 - ZERO) * 64 + n2 - ZERO, (runs1 - ZERO) * 64 + runs2 - ZERO, code - ZERO
-- The keys, then the names.
local words = { cut(ARGV[3], operations, runs * 5 + 5) }
local texts, reply, failure
${UNIFORM}
if not reply then
  texts = texts or call('HMGET', KEYS[1], '', unpack(words, 1, n))
  -- Without a variable of the outside in it: each would cost as much as a small command.
  ${CAREFUL}
  ${MIXED}
end
${SWEEP}
-- Raised once more, the code would stand behind another one.
if failure then return redis.error_reply(failure) end
return ARGV[2] .. '\\n' .. reply
`;

export const SCRIPT = withConstants(LUA);
