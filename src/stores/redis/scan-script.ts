/** Finds the keys of a partition that begin with a text, page by page. */
import type { LookQuery } from "../../store/index.ts";
import type { Connection } from "./connection.ts";
import { mapError } from "./errors.ts";
import { nextCall, replyTo } from "./numbered-call.ts";
import { Script } from "./script-call.ts";

/** How many steps the server takes for one page. Each looks at one of the places that it keeps locks in. */
const STEPS_PER_PAGE = "1000";

/**
 * Scans step by step, and stops before the step that would be too much for the page, so that the next page begins with it. To
 * begin a longer scan again, and pass over what was shown, would miss keys: where the server has made its table of locks
 * smaller meanwhile, the same scan finds keys that it did not find before, and passes over those as well.
 *
 * KEYS[1]: the locks of the partition. ARGV: cursor, pattern, steps, limit, the number of the call. Replies that number; as HSCAN
 * does, without the locks themselves; and the cursor of the first step that found anything.
 */
const script = new Script(`
local cursor, found, first = ARGV[1], {}, nil
for _ = 1, tonumber(ARGV[3]) do
  if #found == 0 then first = cursor end
  local step = redis.call('HSCAN', KEYS[1], cursor, 'MATCH', ARGV[2], 'COUNT', 1)
  if #found > 0 and #found + #step[2] / 2 > tonumber(ARGV[4]) then break end
  for i = 1, #step[2], 2 do found[#found + 1] = step[2][i] end
  cursor = step[1]
  if cursor == '0' then break end
end
return { ARGV[5], cursor, found, first }`);

/** One page of keys, and where the server's scan goes on: "0" at its end. */
export async function scanKeys(
  connection: Connection,
  locks: string,
  { prefix, limit }: Extract<LookQuery, { prefix: string }>,
  scan: string,
  after: string,
): Promise<[next: string, keys: string[], first: string]> {
  const pattern = `${escapePattern(prefix)}*`;
  // What was shown already is of the first step that found anything, and the page goes on with that one.
  const steps = after === "" ? STEPS_PER_PAGE : "1";
  const number = nextCall();
  const words = ["1", locks, scan, pattern, steps, String(limit), number];
  try {
    const reply = await script.run(connection, locks, words);
    const [, next, found, first] = replyTo(number, reply, connection, locks);
    // The field without a name is no lock.
    const keys = (found as unknown[]).map(String).filter((key) => key !== "");
    return [String(next), keys, String(first)];
  } catch (error) {
    throw mapError(error);
  }
}

/** A text that HSCAN takes literally. */
function escapePattern(text: string): string {
  return text.replace(/[*?[\]\\^-]/g, "\\$&");
}
