/** `holdfast token new`: a token for a client, and what the server's token file needs to know of it. */
import { randomBytes } from "node:crypto";
import { chmodSync, readFileSync, renameSync, statSync, writeFileSync } from "node:fs";
import type { Command } from "commander";
import { type Grant, hashToken, type TokenEntry, type Verb } from "../../server/index.ts";
import { usageError } from "../failure.ts";
import { type Output, toJson } from "../output.ts";

interface TokenOptions {
  readonly name: string;
  readonly grant: readonly string[];
  readonly addTo?: string;
  readonly json?: true;
}

const verbs: readonly Verb[] = ["acquire", "read", "admin"];

/** As long as a SHA-256, so that guessing one is no easier than breaking the other. */
const TOKEN_BYTES = 32;

export function configureToken(command: Command, output: Output): void {
  command.description("Makes tokens, by which a server knows its clients.");
  command
    .command("new")
    .summary("make a token")
    .description(
      "Makes a token and prints it, once: it is kept nowhere. The server's token file gets its hash, which is printed as well, or " +
        "added to the file with --add-to. A server reads the file again when it changes.",
    )
    .requiredOption("--name <name>", "for logs, limits and people")
    .option(
      "--grant <prefix=verbs>",
      "what it permits, such as billing/=acquire,read; may be given several times",
      (grant: string, before: readonly string[]) => [...before, grant],
      [] as readonly string[],
    )
    .option("--add-to <path>", "the token file to add it to, which is made if it is missing")
    .option("--json", "one JSON object")
    .addHelpText(
      "after",
      `
Verbs: acquire takes, keeps and gives back locks; read sees who has them; admin ends those of others. An empty prefix is every key.

Examples:
  holdfast token new --name billing --grant billing/=acquire,read
  holdfast token new --name operator --grant =acquire,read,admin --add-to tokens.json`,
    )
    .action((options: TokenOptions) => {
      if (options.grant.length === 0) {
        throw usageError(
          "A token without a --grant permits nothing.",
          "Pass --grant prefix=acquire,read, for instance.",
        );
      }
      const token = `hf_${randomBytes(TOKEN_BYTES).toString("base64url")}`;
      const entry = { name: options.name, sha256: hashToken(token), grants: options.grant.map(parseGrant) };
      if (options.addTo !== undefined) addEntry(options.addTo, entry);
      print(output, options, token, entry);
    });
}

function parseGrant(text: string): Grant {
  const [, prefix, list = ""] = /^(.*)=([a-z,]*)$/.exec(text) ?? [];
  const words = list.split(",");
  const wrong = words.find((word) => !verbs.includes(word as Verb));
  if (prefix === undefined || wrong !== undefined) {
    throw usageError(
      `--grant must be a prefix, "=", and verbs among ${verbs.join(", ")}, not ${JSON.stringify(text)}.`,
      "For instance --grant billing/=acquire,read",
    );
  }
  return { prefix, verbs: words as Verb[] };
}

/** The whole file is replaced at once, so that a server never reads half of it. */
function addEntry(path: string, entry: TokenEntry): void {
  const tokens = readEntries(path);
  if (tokens.some((other) => other.name === entry.name)) {
    throw usageError(
      `${path} has a token called "${entry.name}" already.`,
      "Take another name, or remove that one first.",
    );
  }
  const temporary = `${path}.${process.pid}.new`;
  try {
    writeFileSync(temporary, `${JSON.stringify({ tokens: [...tokens, entry] }, undefined, 2)}\n`, {
      mode: 0o600,
    });
    // Whoever may read the file may go on reading it.
    const before = statSync(path, { throwIfNoEntry: false });
    if (before !== undefined) chmodSync(temporary, before.mode);
    renameSync(temporary, path);
  } catch (error) {
    throw usageError(`--add-to names a file that cannot be written: ${(error as Error).message}.`);
  }
}

function readEntries(path: string): readonly TokenEntry[] {
  let text: string;
  try {
    text = readFileSync(path, "utf8");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return [];
    throw usageError(`--add-to names a file that cannot be read: ${(error as Error).message}.`);
  }
  try {
    const { tokens } = JSON.parse(text) as { tokens: readonly TokenEntry[] };
    if (Array.isArray(tokens)) return tokens;
  } catch {
    // Told below.
  }
  throw usageError(`--add-to names a file that is no token file: ${path} is not { "tokens": [ … ] }.`);
}

function print(output: Output, { json, addTo }: TokenOptions, token: string, entry: TokenEntry): void {
  if (json) {
    output.line(toJson({ token, entry }));
    return;
  }
  output.note("The token, shown this once. Give it to the client as HOLDFAST_TOKEN:");
  output.line(token);
  if (addTo !== undefined) {
    output.note(`Its hash was added to ${addTo}.`);
    return;
  }
  output.note('Its entry, for the list "tokens" of the server\'s token file:');
  output.line(JSON.stringify(entry));
}
