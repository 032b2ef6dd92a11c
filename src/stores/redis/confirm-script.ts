/** Puts a fence that several servers agreed upon in place of the one that this server gave by itself. */
import { createHash } from "node:crypto";
import type { AgreedGrant, ClaimRef } from "../../core/index.ts";
import { LOCK } from "./batch.ts";
import type { Connection } from "./connection.ts";
import { mapError, replyCode } from "./errors.ts";

/**
 * KEYS[1]   the partition's fence
 * KEYS[2]   the lock key
 * KEYS[3]   the claims of a record that has many, a hash
 * ARGV[1]   the claim's id
 * ARGV[2]   its token
 * ARGV[3]   the fence that this server gave it
 * ARGV[4]   the agreed fence
 * ARGV[5]   the agreed time of the grant
 *
 * Replies 1 if the claim is held with that token and that grant, which is now the agreed one, and 0 otherwise. Reads
 * and writes records in the two forms that \`script.ts\` describes.
 */
const SCRIPT = `
local ID, TOKEN, FENCE, ACQUIRED, EXPIRES = 1, 2, 11, 12, 13
local call, pack, unpack = redis.call, cmsgpack.pack, cmsgpack.unpack
local own, fence = tonumber(ARGV[3]), tonumber(ARGV[4])
local time = call('TIME')
local now = math.floor((time[1] * 1000000 + time[2]) / 1000)

if fence > tonumber(call('GET', KEYS[1]) or 0) then call('SET', KEYS[1], ARGV[4]) end
local text = call('GET', KEYS[2])
if not text then return 0 end
local record = unpack(text)

local function find()
  if not record[3] then
    local packed = call('HGET', KEYS[3], ARGV[1])
    return packed and unpack(packed)
  end
  for _, claim in ipairs(record[3]) do
    if claim[ID] == ARGV[1] then return claim end
  end
end

local claim = find()
if not claim or claim[TOKEN] ~= ARGV[2] or claim[EXPIRES] <= now then return 0 end
if claim[FENCE] ~= own and claim[FENCE] ~= fence then return 0 end
claim[FENCE], claim[ACQUIRED] = fence, tonumber(ARGV[5])
record[1] = math.max(record[1], fence)
if not record[3] then call('HSET', KEYS[3], ARGV[1], pack(claim)) end
call('SET', KEYS[2], pack(record), 'KEEPTTL')
return 1
`;

const SHA = createHash("sha1").update(SCRIPT).digest("hex");

export async function confirmGrant(
  connection: Connection,
  partition: string,
  ref: ClaimRef,
  own: bigint,
  agreed: AgreedGrant,
): Promise<boolean> {
  const fenceKey = `${partition}:fence`;
  const keys = [fenceKey, `${partition}${LOCK}${ref.key}`, `${partition}:claims:${ref.key}`];
  const args = [ref.id, ref.token ?? "", `${own}`, `${agreed.fence}`, `${agreed.acquiredAtMs}`];
  const rest = ["3", ...keys, ...args];
  try {
    return (await connection.send(fenceKey, "EVALSHA", [SHA, ...rest])) === 1;
  } catch (error) {
    if (replyCode(error) !== "NOSCRIPT") throw mapError(error);
  }
  try {
    return (await connection.send(fenceKey, "EVAL", [SCRIPT, ...rest])) === 1;
  } catch (error) {
    throw mapError(error);
  }
}
