/** Puts a fence that several servers agreed upon in place of the one that this server gave by itself. */
import type { AgreedGrant, ClaimRef } from "../../store/index.ts";
import { locksOf } from "./batch.ts";
import type { Connection } from "./connection.ts";
import { mapError } from "./errors.ts";
import { nextCall, replyTo } from "./numbered-call.ts";
import { Script } from "./script-call.ts";
import { IS_WHOLE, SETS } from "./script-constants.ts";

/**
 * KEYS[1]   the partition's locks
 * KEYS[2]   the claims of a record that is spread, a hash; KEYS[3..6] the sets of them
 * ARGV[1]   the claim's id
 * ARGV[2]   its token
 * ARGV[3]   the fence that this server gave it
 * ARGV[4]   the agreed fence
 * ARGV[5]   the agreed time of the grant
 * ARGV[6]   who proposes it, or nothing where it is known to be in force
 * ARGV[7]   the lock's key
 * ARGV[8]   the number of the call
 *
 * Replies that number, and "1" if the claim is held with that token and that grant, which is now the agreed one, and "0" otherwise: texts,
 * which clients leave as they are. Reads and writes records in the two forms that \`script.ts\` describes.
 */
const script = new Script(`
local TOKEN, FENCE, ACQUIRED, EXPIRES, AGREED_BY = 2, 11, 12, 13, 15
local JOINED = '*'
local LONE = 104
local call = redis.call
local id, token, own, fence, acquired = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local by, key = ARGV[6], ARGV[7]
local YES = { ARGV[8], '1' }
local time = call('TIME')
local now = math.floor((time[1] * 1000000 + time[2]) / 1000)

local function is_that_grant(held_token, held_fence, expires)
  return held_token == token and expires > now and (held_fence == own or held_fence == fence)
end

-- Whose the fence is from now on; nil where it is somebody else's, who may have handed it out.
local function agreed_by(held_by, held_fence)
  if by == '' then return JOINED end
  if not held_by or held_by == '' or held_by == by then return by end
  return held_fence == fence and JOINED or nil
end

-- A replica may not have heard of the grant. It refuses every write, also one that changes nothing: no lock has such a name.
local function no()
  call('HDEL', KEYS[1], '\\n')
  return { ARGV[8], '0' }
end

if fence > tonumber(call('HGET', KEYS[1], '') or 0) then call('HSET', KEYS[1], '', ARGV[4]) end
local text = call('HGET', KEYS[1], key)
if not text then return no() end

if string.byte(text) == LONE then
  local held_fence, _, expires = struct.unpack('<ddd', text, 2)
  local held_id, held_token, terms, held_by =
    string.match(text, '^([^\\n]*)\\n([^\\n]*)\\n([^\\n]*)\\n?(.*)$', 26)
  if held_id ~= id or not is_that_grant(held_token, held_fence, expires) then return no() end
  local whose = agreed_by(held_by, held_fence)
  if not whose then return no() end
  local rest = table.concat({ id, token, terms, whose }, '\\n')
  call('HSET', KEYS[1], key, 'h' .. struct.pack('<ddd', fence, acquired, expires) .. rest)
  return YES
end

${IS_WHOLE}
local packed = is_whole(unpack(KEYS, 2)) and call('HGET', KEYS[2], id)
local claim = packed and cmsgpack.unpack(packed)
if not claim or not is_that_grant(claim[TOKEN], claim[FENCE], claim[EXPIRES]) then return no() end
local whose = agreed_by(claim[AGREED_BY], claim[FENCE])
if not whose then return no() end
claim[FENCE], claim[ACQUIRED], claim[AGREED_BY] = fence, acquired, whose
call('HSET', KEYS[2], id, cmsgpack.pack(claim))
local last, arrivals, weight, expires = struct.unpack('<dddd', text, 2)
call('HSET', KEYS[1], key, 's' .. struct.pack('<dddd', math.max(last, fence), arrivals, weight, expires))
return YES
`);

export async function confirmGrant(
  connection: Connection,
  partition: string,
  ref: ClaimRef,
  own: bigint,
  agreed: AgreedGrant,
): Promise<boolean> {
  const locks = locksOf(partition);
  const number = nextCall();
  const args = [
    ref.id,
    ref.token ?? "",
    `${own}`,
    `${agreed.fence}`,
    `${agreed.acquiredAtMs}`,
    agreed.by ?? "",
    ref.key,
    number,
  ];
  const sets = SETS.map((kind) => `${partition}:${kind}:${ref.key}`);
  const words = [String(1 + sets.length), locks, ...sets, ...args];
  try {
    const reply = await script.run(connection, locks, words);
    return String(replyTo(number, reply, connection, locks)[1]) === "1";
  } catch (error) {
    throw mapError(error);
  }
}
