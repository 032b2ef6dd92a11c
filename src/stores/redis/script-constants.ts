/** What the names in `script.ts` stand for. As a local of Lua's, each would cost something at every call. */
const constants: Readonly<Record<string, number | string>> = {
  // The verbs.
  ACQUIRE: 1,
  RENEW: 2,
  RELEASE: 3,
  LOOK: 4,
  TRY: 5,
  // The fields of a claim.
  ID: 1,
  TOKEN: 2,
  WEIGHT: 3,
  LIMIT: 4,
  PRIORITY: 5,
  TTL: 6,
  OWNER: 7,
  INFO: 8,
  APPLICATION: 9,
  ARRIVAL: 10,
  FENCE: 11,
  ACQUIRED: 12,
  EXPIRES: 13,
  PROMISED: 14,
  AGREED_BY: 15,
  /** The owner in terms. */
  OWNER_TERM: 5,
  // What all calls of a store say.
  MAX_WAITERS: 1,
  CHANNELS: 2,
  OWNERS: 3,
  /** A token that nobody has. */
  NOBODY: "''",
  UNLIMITED: Number.MAX_SAFE_INTEGER,
  // Characters: what a lone record begins with, what one that is spread does, the digit that numbers count from.
  LONE: 104,
  SPREAD: 115,
  ZERO: 48,
  /** Of the text of a record that is spread. That of a lone one is longer. */
  SPREAD_LENGTH: 33,
  /** How long Redis keeps the sets of a record that is spread, after its last claim has expired. */
  SLACK_MS: 1_000,
  /** One operation in so many has its call look for what expired long ago: at how many fields first, then each time, and in all. */
  SWEEP_EVERY: 64,
  SWEPT_FIRST: 2,
  SWEPT_NEXT: 64,
  SWEPT_MOST: 256,
  /** Half of the digits of a fence. */
  HALF: 100_000_000,
};

/**
 * Whether no set of a spread record is lost. Without waiters there are three. Three are also left when both sets of the waiters are lost,
 * but then there are more claims than holders.
 */
export const IS_WHOLE = `
local function is_whole(claims, held, limits, waiting, queue)
  local count = redis.call('EXISTS', claims, held, limits, waiting, queue)
  if count ~= 3 then return count == 5 end
  local holders = redis.call('ZCARD', held)
  return holders > 0 and redis.call('HLEN', claims) == holders
end
`;

/** The claims of a record that is spread, and the sorted sets of them. */
export const SETS = ["claims", "held", "limits", "waiting", "queue"] as const;

/** Where they are. */
export const KEYS_OF = SETS.map((kind) => `partition .. ':${kind}:' .. key`).join(", ");

export function withConstants(lua: string): string {
  return lua.replace(/\b[A-Z_]+\b/g, (name) => String(constants[name] ?? name));
}
