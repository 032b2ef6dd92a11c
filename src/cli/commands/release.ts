/** `holdfast release`: ends a claim of any client. */
import { createInterface } from "node:readline/promises";
import type { Command } from "commander";
import { type ClaimStatus, checkKey, type KeyStatus } from "../../store/index.ts";
import { modeText, viewOfClaim } from "../claim-view.ts";
import { exitCodes } from "../exit-codes.ts";
import { CliError, usageError } from "../failure.ts";
import { type Output, toJson } from "../output.ts";
import { addTargetOptions, resolveTarget, withLocks } from "../target.ts";

interface ReleaseOptions {
  readonly yes?: true;
  readonly all?: true;
  readonly json?: true;
}

export function configureRelease(command: Command, output: Output): void {
  command
    .description(
      "Ends a claim of any client, held or waiting. The next waiter is granted the key at once. The former holder learns of it " +
        "at its next heartbeat, up to a third of its ttl later. Until then only the fence keeps the two apart.",
    )
    .argument("<key>", "the key")
    .argument("[id]", "the claim's id, as ls and inspect show it; not needed if one claim holds the key")
    .option("-y, --yes", "do not ask for confirmation")
    .option("--all", "end every claim that holds the key")
    .option("--json", "one JSON object");
  addTargetOptions(command)
    .addHelpText(
      "after",
      `
Exits with 1 if there was no claim to end.

Examples:
  holdfast release nightly-report
  holdfast release nightly-report run-17 --yes`,
    )
    .action(async (key: string, id: string | undefined, options: ReleaseOptions) => {
      if (id !== undefined && options.all)
        throw usageError("[id] and --all exclude each other. Pass one of them.");
      checkKey(key, "<key>");
      await withLocks(resolveTarget(command), async (locks) => {
        const status = await locks.inspect(key, { maxClaims: 10_000 });
        const claims = choose(status, id, options.all === true);
        if (claims.length > 0 && !options.yes) await confirm(output, key, claims);
        const released: string[] = [];
        for (const claim of claims) if (await locks.forceRelease(key, claim.id)) released.push(claim.id);
        if (options.json) output.line(toJson({ key, released }));
        else print(output, key, released);
        if (released.length === 0) process.exitCode = exitCodes.no;
      });
    });
}

/** The claims to end. If several hold the key, the user must choose. */
function choose(
  { key, held, waiting, heldCount }: KeyStatus,
  id: string | undefined,
  all: boolean,
): readonly ClaimStatus[] {
  if (id !== undefined) return [...held, ...waiting].filter((claim) => claim.id === id);
  if (heldCount > 1 && !all) {
    const ids = held.slice(0, 5).map((claim) => claim.id);
    throw usageError(
      `${heldCount} claims hold "${key}": ${ids.join(", ")}${heldCount > ids.length ? ", …" : ""}.`,
      `Write: holdfast release ${key} <id> for one of them, or pass --all.`,
    );
  }
  return held;
}

async function confirm(output: Output, key: string, claims: readonly ClaimStatus[]): Promise<void> {
  if (!process.stdin.isTTY) {
    throw usageError(
      "release asks for confirmation, but the standard input is not a terminal.",
      "Pass --yes to release without a question.",
    );
  }
  for (const claim of claims.slice(0, 10)) {
    const info = claim.info === "" ? "" : `, "${claim.info}"`;
    output.note(
      `${key}: ${claim.id} (${claim.state}, ${modeText(viewOfClaim(claim))}, by ${claim.owner}${info})`,
    );
  }
  const asking = createInterface({ input: process.stdin, output: process.stderr });
  const gone = new AbortController();
  // Ctrl-C and Ctrl-D mean no. Without these listeners the question would stay open.
  asking.on("SIGINT", () => asking.close());
  asking.on("close", () => gone.abort());
  const claimText = claims.length === 1 ? "this claim" : `these ${claims.length} claims`;
  const question = `End ${claimText}? A holder may still be working. [y/N] `;
  const answer = await asking.question(question, { signal: gone.signal }).catch(() => "");
  asking.close();
  if (!/^y(es)?$/i.test(answer.trim())) throw new CliError(exitCodes.no, "cancelled, no claim was ended.");
}

function print(output: Output, key: string, released: readonly string[]): void {
  if (released.length === 0) output.note(`"${key}" has no such claim. No claim was ended.`);
  for (const id of released) output.line(`released ${id} on ${key}`);
}
