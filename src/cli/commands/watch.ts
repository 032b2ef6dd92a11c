/** `holdfast watch`: changes of keys. */
import { setTimeout as sleep } from "node:timers/promises";
import type { Command } from "commander";
import type { Locks } from "../../client/index.ts";
import { checkKey, checkPrefix, HoldfastError } from "../../store/index.ts";
import { type KeyView, keyHeadings, keyRow, modeText, viewOfKey } from "../claim-view.ts";
import { parseDuration, writeDuration } from "../duration.ts";
import { exitCodes } from "../exit-codes.ts";
import { inFlags, usageError } from "../failure.ts";
import { changesBetween, claimsOf, type KeyChange } from "../key-changes.ts";
import { type Output, table, toJson } from "../output.ts";
import { stopSignal } from "../stop-signal.ts";
import { addTargetOptions, resolveTarget, withLocks } from "../target.ts";
import { collect } from "./ls.ts";

interface WatchOptions {
  readonly prefix?: string;
  readonly interval: string;
  readonly json?: true;
}

/** The claims of a key that are followed. Later ones in a long queue appear as they move up. */
const FOLLOWED_CLAIMS = 1_000;

export function configureWatch(command: Command, output: Output): void {
  command
    .description(
      "Shows the changes of one key, of the keys with a prefix, or of all keys. On a terminal it redraws a table; otherwise it prints " +
        "the claims that exist, then a line per change. It reads the store once per interval, so it misses claims that come and go " +
        "in between. Ctrl-C ends it.",
    )
    .argument("[key]", "the key (default: all keys)")
    .option("--prefix <prefix>", "the keys that begin with this, instead of one key")
    .option("--interval <duration>", "how long to wait between two reads", "1s")
    .option("--json", "one JSON object per change and line");
  addTargetOptions(command)
    .addHelpText(
      "after",
      `
Examples:
  holdfast watch
  holdfast watch nightly-report
  holdfast watch --prefix billing/ --json | jq -r 'select(.event == "held") | .key'`,
    )
    .action(async (key: string | undefined, options: WatchOptions) => {
      if (key !== undefined && options.prefix !== undefined) {
        throw usageError("[key] and --prefix exclude each other. Pass one of them.");
      }
      if (key !== undefined) checkKey(key, "[key]");
      if (options.prefix !== undefined) checkPrefix(options.prefix, "--prefix");
      const intervalMs = parseDuration("--interval", options.interval);
      if (intervalMs < 100) throw usageError(`--interval must be 100ms or more, not ${options.interval}.`);
      const stop = stopSignal();
      const watched = async (locks: Locks) => {
        const see =
          output.isTerminal && !options.json
            ? tableDrawer(output)
            : changePrinter(output, options.json === true);
        await follow(output, () => look(locks, key, options.prefix), see, intervalMs, stop.signal);
      };
      await withLocks(resolveTarget(command), watched, stop.signal).catch((error) => {
        if (stop.number() === 0) throw error;
      });
      process.exitCode = exitCodes.signal + stop.number();
    });
}

async function look(locks: Locks, key: string | undefined, prefix = ""): Promise<readonly KeyView[]> {
  const maxClaims = FOLLOWED_CLAIMS;
  if (key !== undefined) return [viewOfKey(await locks.inspect(key, { maxClaims }))];
  return collect(locks.list({ prefix, maxClaims }));
}

/** Reads until the signal aborts. Reports the begin and the end of an outage once; other failures end it. */
async function follow(
  output: Output,
  look: () => Promise<readonly KeyView[]>,
  see: (views: readonly KeyView[]) => void,
  intervalMs: number,
  signal: AbortSignal,
): Promise<void> {
  let seen = false;
  let out = false;
  while (!signal.aborted) {
    try {
      const views = await look();
      if (out) output.note("holdfast: the store answers again.");
      out = false;
      seen = true;
      see(views);
    } catch (error) {
      const outage = error instanceof HoldfastError && error.retryable;
      // At the start the address is probably wrong.
      if (!outage || !seen) throw error;
      if (!out)
        output.note(
          `holdfast: ${error.code}: ${inFlags(error.message)} Retrying every ${writeDuration(intervalMs)}.`,
        );
      out = true;
    }
    await sleep(intervalMs, undefined, { signal }).catch(() => {});
  }
}

/** Prints every change. */
function changePrinter(output: Output, json: boolean): (views: readonly KeyView[]) => void {
  let before = claimsOf([]);
  return (views) => {
    const after = claimsOf(views);
    const at = new Date().toISOString();
    for (const change of changesBetween(before, after)) {
      output.line(json ? toJson({ at, ...change }) : lineOf(at, change));
    }
    before = after;
  };
}

function lineOf(at: string, { event, key, claim }: KeyChange): string {
  const fence = claim.fence === null ? "" : ` fence ${claim.fence}`;
  const info = claim.info === "" ? "" : ` "${claim.info}"`;
  return `${at} ${event.padEnd(7)} ${key} ${claim.id} ${modeText(claim)}${fence} ${claim.owner}${info}`;
}

/** Redraws the table in place. */
function tableDrawer(output: Output): (views: readonly KeyView[]) => void {
  output.raw("\u001b[2J");
  return (views) => {
    const rows = views.filter(({ heldCount, waitingCount }) => heldCount + waitingCount > 0);
    // A terminal of unknown size has 0 rows.
    const room = Math.max(1, (process.stdout.rows || 24) - 4);
    const width = process.stdout.columns || 80;
    const lines = [
      `${new Date().toLocaleTimeString()}  ${rows.length} keys. Ctrl-C ends the display.`,
      "",
      ...table(output, keyHeadings, rows.slice(0, room).map(keyRow)),
      ...(rows.length > room ? [`… and ${rows.length - room} more`] : []),
    ];
    // Overwrites line by line and then clears the rest. Clearing first would flicker.
    output.raw(`\u001b[H${lines.map((line) => `${cut(line, width)}\u001b[K\n`).join("")}\u001b[J`);
  };
}

/** Cuts a line to the width, because it would wrap. The headings, which have colours, fit. */
function cut(line: string, width: number): string {
  return line.includes("\u001b") ? line : [...line].slice(0, width).join("");
}
