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
  // Characters: what a lone record begins with, the digit that numbers count from.
  LONE: 104,
  ZERO: 48,
  /** Half of the digits of a fence. */
  HALF: 100_000_000,
};

export function withConstants(lua: string): string {
  return lua.replace(/\b[A-Z_]+\b/g, (name) => String(constants[name] ?? name));
}
