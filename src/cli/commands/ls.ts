/** `holdfast ls`: the keys that are held or waited for. */
import type { Command } from "commander";
import { bounds, checkPrefix, type KeyStatus } from "../../store/index.ts";
import { type KeyView, keyHeadings, keyRow, viewOfKey } from "../claim-view.ts";
import { parseInteger } from "../number.ts";
import type { Output } from "../output.ts";
import { table, toJson } from "../output.ts";
import { addTargetOptions, resolveTarget, withLocks } from "../target.ts";

interface LsOptions {
  readonly json?: true;
  readonly maxClaims: string;
}

export function configureLs(command: Command, output: Output): void {
  command
    .description(
      "Lists the keys that are held or waited for. The list is not a snapshot: keys that change meanwhile may be missing.",
    )
    .argument("[prefix]", "only keys that begin with this")
    .option("--json", "one JSON object per key and line")
    .option("--max-claims <number>", "how many holders and waiters to show of each key with --json", "100");
  addTargetOptions(command)
    .addHelpText(
      "after",
      `
Examples:
  holdfast ls
  holdfast ls billing/
  holdfast ls --json | jq -r 'select(.waitingCount > 0) | .key'`,
    )
    .action(async (prefix: string = "", options: LsOptions) => {
      checkPrefix(prefix, "[prefix]");
      const maxClaims = parseInteger("--max-claims", options.maxClaims, 0, bounds.maxShownClaims);
      await withLocks(resolveTarget(command), async (locks) => {
        const listing = locks.list({ prefix, maxClaims });
        if (options.json) await printLines(output, listing);
        else await printTable(output, listing, prefix);
      });
    });
}

async function printLines(output: Output, listing: AsyncIterable<KeyStatus>): Promise<void> {
  for await (const status of listing) output.line(toJson(viewOfKey(status)));
}

async function printTable(output: Output, listing: AsyncIterable<KeyStatus>, prefix: string): Promise<void> {
  const views = await collect(listing);
  if (views.length === 0) {
    output.note(
      prefix === ""
        ? "No key is held or waited for."
        : `No key that begins with "${prefix}" is held or waited for.`,
    );
    return;
  }
  for (const line of table(output, keyHeadings, views.map(keyRow))) output.line(line);
}

/** Sorts by key. A listing may contain a key twice; the later status counts. */
export async function collect(listing: AsyncIterable<KeyStatus>): Promise<KeyView[]> {
  const views = new Map<string, KeyView>();
  for await (const status of listing) views.set(status.key, viewOfKey(status));
  return [...views.values()].sort((a, b) => (a.key < b.key ? -1 : 1));
}
