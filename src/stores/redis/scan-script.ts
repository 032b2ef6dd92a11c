/** Finds the keys of a partition that begin with a text, page by page. */
import type { LookQuery } from "../../core/index.ts";
import type { Connection } from "./connection.ts";
import { mapError } from "./errors.ts";
import { nextCall, replyTo } from "./numbered-call.ts";

/** How many steps the server takes for one page. Each looks at one of the places that it keeps keys in. */
const STEPS_PER_PAGE = "1000";

/**
 * Scans step by step, and stops before the step that would be too much for the page, so that the next page begins with it. To
 * begin a longer scan again, and pass over what was shown, would miss keys: where the server has made its table of keys
 * smaller meanwhile, the same scan finds keys that it did not find before, and passes over those as well.
 *
 * A command has no key by which a cluster client would find the server that has the partition; a script has.
 *
 * KEYS[1]: any of the partition. ARGV: cursor, pattern, steps, limit, the number of the call. Replies that number, and as SCAN does.
 */
const SCAN_SCRIPT = `
local cursor, found = ARGV[1], {}
for _ = 1, tonumber(ARGV[3]) do
  local step = redis.call('SCAN', cursor, 'MATCH', ARGV[2], 'COUNT', 1)
  if #found > 0 and #found + #step[2] > tonumber(ARGV[4]) then break end
  for _, key in ipairs(step[2]) do found[#found + 1] = key end
  cursor = step[1]
  if cursor == '0' then break end
end
return { ARGV[5], cursor, found }`;

/** One page of names after `beginning`, and where the server's scan goes on: "0" at its end. */
export async function scanKeys(
  connection: Connection,
  beginning: string,
  { prefix, limit }: Extract<LookQuery, { prefix: string }>,
  scan: string,
  after: string,
): Promise<[next: string, keys: string[]]> {
  const pattern = `${escapePattern(beginning + prefix)}*`;
  // What was shown already is of the first step alone.
  const steps = after === "" ? STEPS_PER_PAGE : "1";
  const number = nextCall();
  const args = [SCAN_SCRIPT, "1", beginning, scan, pattern, steps, String(limit), number];
  try {
    const reply = await connection.send(beginning, "EVAL", args);
    const [, next, found] = replyTo(number, reply, connection, beginning);
    return [String(next), (found as unknown[]).map((key) => String(key).slice(beginning.length))];
  } catch (error) {
    throw mapError(error);
  }
}

/** A text that SCAN takes literally. */
function escapePattern(text: string): string {
  return text.replace(/[*?[\]\\^-]/g, "\\$&");
}
