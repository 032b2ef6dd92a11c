/** Finds the keys of a partition that begin with a text, page by page. */
import { invalid, type LookQuery } from "../../store/index.ts";
import type { Connection } from "./client.ts";
import { nextCall, Script } from "./script-call.ts";

/**
 * Scans in steps of one bucket of the hash table, at most ARGV[3], and stops before a step that exceeds the page. A page never repeats
 * a longer scan: if the table shrank meanwhile, the repeated scan would pass over keys that no page has shown.
 *
 * KEYS[1]: the locks. ARGV: cursor, pattern, steps, limit, number of the call. Replies that number, the next cursor, the keys, and the
 * cursor of the first step that found any.
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

const STEPS_PER_PAGE = "1000";

/** A place in a listing: the partition, the cursor of the server's scan, and the last key shown of the step at that cursor. */
interface Place {
  readonly partition: number;
  readonly scan: string;
  readonly after: string;
}

export function readCursor(cursor: string | undefined, partitions: number): Place {
  const match = /^(\d{1,4})\.(\d{1,20})\.(.*)$/s.exec(cursor ?? "0.0.");
  const [, partition, scan = "", after = ""] = match ?? [];
  if (match !== null && Number(partition) < partitions) return { partition: Number(partition), scan, after };
  throw invalid(`cursor must be the cursor of the previous page, not "${cursor}".`);
}

/** The keys of a page, and the cursor of the next page unless this is the last. */
export async function scanPage(
  connection: Connection,
  locks: string,
  { prefix, limit }: Extract<LookQuery, { prefix: string }>,
  { partition, scan, after }: Place,
  partitions: number,
): Promise<{ keys: readonly string[]; cursor?: string }> {
  const pattern = `${prefix.replace(/[*?[\]\\^-]/g, "\\$&")}*`;
  const number = nextCall();
  // Keys that were shown are of the first step of the page before, which is repeated alone.
  const steps = after === "" ? STEPS_PER_PAGE : "1";
  const reply = await script.run(connection, locks, number, [scan, pattern, steps, String(limit), number]);
  const [next, found, first] = [String(reply[1]), reply[2] as unknown[], String(reply[3])];
  // The field without a name is the mark.
  const left = [...new Set(found.map(String))].filter((key) => key !== "" && key > after).sort();
  const keys = left.slice(0, limit);
  if (left.length > keys.length) return { keys, cursor: `${partition}.${first}.${keys.at(-1)}` };
  if (next !== "0") return { keys, cursor: `${partition}.${next}.` };
  return partition + 1 < partitions ? { keys, cursor: `${partition + 1}.0.` } : { keys };
}
