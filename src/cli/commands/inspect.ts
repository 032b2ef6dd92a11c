/** `holdfast inspect`: the holders and waiters of a key. */
import type { Command } from "commander";
import { bounds, checkKey } from "../../store/index.ts";
import { claimHeadings, claimRow, viewOfKey } from "../claim-view.ts";
import { parseInteger } from "../number.ts";
import type { Output } from "../output.ts";
import { table, toJson } from "../output.ts";
import { addTargetOptions, resolveTarget, withLocks } from "../target.ts";

interface InspectOptions {
  readonly json?: true;
  readonly maxClaims: string;
}

export function configureInspect(command: Command, output: Output): void {
  command
    .description("Shows the holders of a key in order of grant, and its waiters in order of turn.")
    .argument("<key>", "the key")
    .option("--json", "one JSON object")
    .option("--max-claims <number>", "how many holders and waiters to show", "100");
  addTargetOptions(command)
    .addHelpText(
      "after",
      `
Examples:
  holdfast inspect nightly-report
  holdfast inspect nightly-report --json | jq '.held[0].fence'`,
    )
    .action(async (key: string, options: InspectOptions) => {
      checkKey(key, "<key>");
      const maxClaims = parseInteger("--max-claims", options.maxClaims, 0, bounds.maxShownClaims);
      await withLocks(resolveTarget(command), async (locks) => {
        const view = viewOfKey(await locks.inspect(key, { maxClaims }));
        if (options.json) {
          output.line(toJson(view));
          return;
        }
        output.line(`${output.paint("bold", key)}: ${view.heldCount} held, ${view.waitingCount} waiting`);
        if (view.fence !== "0") output.line(`latest fence ${view.fence}`);
        const claims = [...view.held, ...view.waiting];
        if (claims.length === 0) return;
        output.line("");
        for (const line of table(output, claimHeadings, claims.map(claimRow))) output.line(line);
        const hidden = view.heldCount + view.waitingCount - claims.length;
        if (hidden > 0) output.note(`${hidden} more claims are not shown. Raise --max-claims to see them.`);
      });
    });
}
