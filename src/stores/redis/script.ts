import { ALONE } from "./script-alone.ts";
import { MACHINE } from "./script-machine.ts";
import { SPREAD } from "./script-spread.ts";
import { SWEEP } from "./script-sweep.ts";

/**
 * The record machine of `src/record/record.ts` in Lua, applied to a batch of operations. The differential test plays the same random
 * histories to both and compares every answer.
 *
 * KEYS[1]   the locks of the partition, a hash by key: "<partition>:locks". Its field without a name is the mark: the highest fence that
 *           the partition gave out
 * ARGV[1]   JSON: [the most claims that may wait for one key, the beginning of the channels, [the owners whose grants come back in the reply]]
 * ARGV[2]   the highest fence that this client has seen, in 16 digits, and the number of the call. A server that lost its mark in a
 *           failover gets it back from here
 * ARGV[3]   JSON: four lists with one item for each operation: verbs, keys, names, and the places in ARGV of their terms, 0 for none.
 *           A name is an id and a token, each followed by a line break. The verbs and their terms:
 *             acquire, try   JSON: [ttlMs, weight, limit, priority, owner, info, application]; a limit of 0 is none
 *             renew          a ttl, or none
 *             release        none; the release of an administrator has an empty token
 *             look           how many claims to show
 *             confirm        JSON: [the fence that this server gave, the agreed fence, the agreed acquiredAtMs, the name of the proposer, or an
 *                            empty text if a majority is known to have that fence]
 * ARGV[4..] the terms; equal ones share a place
 *
 * Replies ARGV[2] and a text of lines: the answers; the grants to own owners, each as the number of an operation on the key, owner, id and fence. An
 * answer is one of these, a line each:
 *   1, fence, acquiredAtMs, expiresInMs   held
 *   2, expiresInMs, retryInMs, fence      waiting; the fence of the latest grant
 *   3, reason                             refused: 1 contended, 2 queue full, 3 id reused
 *   4                                     gone
 *   5, owner                              taken over by that owner
 *   0 or 1                                whether a release removed the claim, or a confirm found that grant
 *   -1, text                              this operation failed alone: its key holds foreign data, or the user has no right to it
 *   fence, heldCount, heldWeight, waitingCount, the numbers of held and waiting claims that follow, and for each of them id, weight, limit,
 *     priority, ttlMs, owner, info, application, expiresInMs, fence and acquiredAtMs              look
 *
 * A lock is a text in one of two forms:
 *   "h", fence, acquiredAtMs and expiresAtMs as doubles, name, terms, and a line break with the proposer of the fence where several
 *        servers agreed on it: one claim holds the key alone, and was never taken over
 *   "s", fence, arrivals, weight of the held and last expiry as doubles: the claims are in the sets of `script-spread.ts`, until
 *        no claim is left
 *
 * All texts are read with one HMGET and written with at most one HDEL and one HSET.
 */
export const SCRIPT = `
local call, byte, sub, match, format = redis.call, string.byte, string.sub, string.match, string.format
local cut, pack = struct.unpack, struct.pack
local UNLIMITED = ${Number.MAX_SAFE_INTEGER}
local time = call('TIME')
local us = time[1] * 1000000 + time[2]
local now = math.floor(us / 1000)
local verbs, keys, names, places = unpack(cjson.decode(ARGV[3]))
local n = #verbs
local stored = call('HMGET', KEYS[1], '', unpack(keys))
local mark = tonumber(stored[1] or 0)
if mark then mark = math.max(mark, tonumber(sub(ARGV[2], 1, 16))) end
local gave = false
-- The texts of the locks after the operations so far: false if there was none, nil if it was deleted.
local texts = {}
for i = 1, n do texts[keys[i]] = stored[i + 1] end
local reply = {}

-- Above every fence of this partition and of this client, and at least the time.
local function next_fence(last)
  if not mark or mark >= UNLIMITED then error('not the mark of fences') end
  mark, gave = math.max(us, mark + 1, last + 1), true
  return mark
end

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

local function is_lone(text)
  return #text > 33 and byte(text) == 104
end

local function read_lone(text)
  local fence, acquired, expires = cut('<ddd', text, 2)
  local id, token, terms_text, agreed_by = match(text, '^([^\\n]*)\\n([^\\n]*)\\n([^\\n]*)\\n?(.*)$', 26)
  if not id then error('not the text of a lock') end
  local terms = terms_of(terms_text)
  local claim = { id = id, token = token, ttl = terms[1], weight = terms[2], limit = terms[3], priority = terms[4], owner = terms[5],
    info = terms[6], application = terms[7], arrival = 0, fence = fence, acquired = acquired, expires = expires, promised = 0,
    agreed_by = agreed_by ~= '' and agreed_by or nil }
  return claim, terms_text
end

-- Replaces the fence of a grant by the one that several servers agree on. Refuses if another proposer may have handed out its fence.
local function agree(claim, token, terms)
  if not mark then error('not the mark of fences') end
  local own, fence, acquired, by = unpack(cjson.decode(terms))
  if mark < fence then mark, gave = fence, true end
  if not claim or claim.token ~= token or claim.fence == 0 or claim.expires <= now then return false end
  if claim.fence ~= own and claim.fence ~= fence then return false end
  local agreed_by = '*'
  if by ~= '' and (not claim.agreed_by or claim.agreed_by == by) then
    agreed_by = by
  elseif by ~= '' and claim.fence ~= fence then
    return false
  end
  claim.fence, claim.acquired, claim.agreed_by = fence, acquired, agreed_by
  return true
end
${ALONE}
local machine
local function make_machine()
  ${SPREAD}
  ${MACHINE}
end

local function apply(i, verb, key, name, terms)
  local answer = apply_alone(verb, key, name, terms)
  if answer then return answer end
  machine = machine or make_machine()
  return machine.apply(i, verb, key, name, terms)
end

-- The text of an error. Versions of Redis differ in its type and in what precedes it.
local function text_of(raised)
  local text = type(raised) == 'table' and raised.err or tostring(raised)
  text = string.gsub(text, '^@?user_script: ?%d+: ', '')
  text = string.gsub(text, '^%-', '')
  return text
end

local function is_of_one_key(text)
  local code = match(text, '^(%u%u+) ')
  return not code or code == 'WRONGTYPE' or code == 'NOPERM' or code == 'ERR' or code == 'OOM'
end

local changes = false
for i = 1, n do
  local verb, key, name, terms = verbs[i], keys[i], names[i], ARGV[places[i]]
  changes = changes or verb ~= 'look'
  local ok, answer = pcall(apply, i, verb, key, name, terms)
  if not ok then
    local text = text_of(answer)
    -- A server that refuses writes does so at the first one. Then nothing is done, and the call fails.
    if not is_of_one_key(text) and not machine.wrote then return redis.error_reply(text) end
    answer = '-1\\n' .. string.gsub(text, '%c', ' ')
    if machine then for _, other in ipairs(machine.give_up(key)) do reply[other] = answer end end
  end
  reply[i] = answer
end

if machine then machine.save() end
local gone, goes, kept, keeps = {}, 0, {}, 0
for i = 1, n do
  local key = keys[i]
  local text = texts[key]
  if text and text ~= stored[i + 1] then
    kept[keeps + 1], kept[keeps + 2], keeps = key, text, keeps + 2
  elseif text == nil then
    goes = goes + 1
    gone[goes] = key
  end
end
if gave then kept[keeps + 1], kept[keeps + 2], keeps = '', format('%.0f', mark), keeps + 2 end
-- Without memory, Redis refuses the first write of a script and no other, so the one that needs none comes first.
if goes > 0 then call('HDEL', KEYS[1], unpack(gone)) end
if keeps > 0 then call('HSET', KEYS[1], unpack(kept)) end
-- A replica may answer from old data. It refuses every write, also one that changes nothing: no lock has such a name.
if changes and goes + keeps == 0 then call('HDEL', KEYS[1], '\\n') end
if machine then machine.tell() end
${SWEEP}
return { ARGV[2], table.concat(reply, '\\n') }
`;
