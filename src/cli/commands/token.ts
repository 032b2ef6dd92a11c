/** `holdfast token new`: a token for a client, and its entry for the server's token file. */
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

/** The length of a SHA-256, so that guessing a token is as hard as inverting its hash. */
const TOKEN_BYTES = 32;

export function configureToken(command: Command, output: Output): void {
  command.description("Makes tokens, which identify the clients of a server.");
  command
    .command("new")
    .summary("make a token")
    .description(
      "Makes a token and prints it. It is not stored, so it is shown only once. The entry for the server's token file, with the " +
        "token's hash, is printed as well, or added to the file with --add-to. A server reads the file again when it changes.",
    )
    .requiredOption("--name <name>", "the name of the token in logs and limits")
    .option(
      "--grant <prefix=verbs>",
      "a permission, such as billing/=acquire,read; may be given several times",
      (grant: string, before: readonly string[]) => [...before, grant],
      [] as readonly string[],
    )
    .option("--add-to <path>", "the token file to add the entry to; it is made if it is missing")
    .option("--json", "one JSON object")
    .addHelpText(
      "after",
      `
Verbs: acquire takes, renews and releases locks; read lists holders and waiters; admin ends claims of others.
An empty prefix stands for every key.

Examples:
  holdfast token new --name billing --grant billing/=acquire,read
  holdfast token new --name operator --grant =acquire,read,admin --add-to tokens.json`,
    )
    .action((options: TokenOptions) => {
      if (options.grant.length === 0) {
        throw usageError(
          "a token without a --grant permits nothing.",
          "Pass at least one, such as --grant billing/=acquire,read",
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
      `--grant must be a prefix, "=" and verbs out of ${verbs.join(", ")}, not ${JSON.stringify(text)}.`,
      "Write, for instance: --grant billing/=acquire,read",
    );
  }
  return { prefix, verbs: words as Verb[] };
}

/** Replaces the whole file at once, so that a server never reads a part of it. */
function addEntry(path: string, entry: TokenEntry): void {
  const tokens = readEntries(path);
  if (tokens.some((other) => other.name === entry.name)) {
    throw usageError(
      `${path} already has a token named "${entry.name}".`,
      "Choose another --name, or remove that entry first.",
    );
  }
  const temporary = `${path}.${process.pid}.new`;
  try {
    writeFileSync(temporary, `${JSON.stringify({ tokens: [...tokens, entry] }, undefined, 2)}\n`, {
      mode: 0o600,
    });
    // Keeps the permissions of the file.
    const before = statSync(path, { throwIfNoEntry: false });
    if (before !== undefined) chmodSync(temporary, before.mode);
    renameSync(temporary, path);
  } catch (error) {
    throw usageError(
      `cannot write the file of --add-to: ${(error as Error).message}.`,
      "Check the path and its permissions.",
    );
  }
}

function readEntries(path: string): readonly TokenEntry[] {
  let text: string;
  try {
    text = readFileSync(path, "utf8");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return [];
    throw usageError(
      `cannot read the file of --add-to: ${(error as Error).message}.`,
      "Check the path and its permissions.",
    );
  }
  try {
    const { tokens } = JSON.parse(text) as { tokens: readonly TokenEntry[] };
    if (Array.isArray(tokens)) return tokens;
  } catch {
    // Reported below.
  }
  throw usageError(
    `the file of --add-to is not a token file: ${path} is not { "tokens": [ … ] }.`,
    "Name another file. A missing file is made.",
  );
}

function print(output: Output, { json, addTo }: TokenOptions, token: string, entry: TokenEntry): void {
  if (json) {
    output.line(toJson({ token, entry }));
    return;
  }
  output.note("The token, which is shown only once. Give it to the client as HOLDFAST_TOKEN:");
  output.line(token);
  if (addTo !== undefined) {
    output.note(`The hash of the token was added to ${addTo}.`);
    return;
  }
  output.note('The entry for the list "tokens" of the server\'s token file:');
  output.line(JSON.stringify(entry));
}
