/** Bearer tokens, of which the server has only hashes. A token file is read again when it changes. */
import { createHash, timingSafeEqual } from "node:crypto";
import { readFile, stat } from "node:fs/promises";
import { invalid } from "../store/index.ts";
import { type Grant, type Principal, type Verb, verbs } from "./access.ts";
import { checkName } from "./ownership.ts";

/** An entry of the token file. */
export interface TokenEntry {
  /** The principal, which owns the claims made with this token on every server over the store. Tokens of one name share it. */
  readonly name: string;
  /** The SHA-256 of the token, in 64 hexadecimal digits: `hashToken` makes it. */
  readonly sha256: string;
  readonly grants: readonly Grant[];
}

/** The hash that represents a token in the token file. */
export function hashToken(token: string): string {
  return createHash("sha256").update(token).digest("hex");
}

interface Known {
  readonly hash: Buffer;
  readonly principal: Principal;
}

const RELOAD_MS = 1_000;

export class Tokens {
  #known: readonly Known[];
  /** Grows with each change of the tokens. */
  version = 0;
  #timer: NodeJS.Timeout | undefined;

  constructor(entries: readonly TokenEntry[]) {
    this.#known = entries.map(knownOf);
  }

  /** Reads a token file now and after each change. An invalid file changes nothing; `onReload` gets the error. */
  static async fromFile(path: string, onReload: (error: unknown) => void): Promise<Tokens> {
    const tokens = new Tokens(parseTokens(await readFile(path, "utf8"), path));
    let seen = await stampOf(path);
    let busy = false;
    tokens.reload = async (evenIfUnchanged) => {
      if (busy) return;
      busy = true;
      try {
        const now = await stampOf(path);
        if (now === seen && !evenIfUnchanged) return;
        seen = now;
        tokens.#known = parseTokens(await readFile(path, "utf8"), path).map(knownOf);
        tokens.version++;
        onReload(undefined);
      } catch (error) {
        onReload(error);
      } finally {
        busy = false;
      }
    };
    tokens.#timer = setInterval(() => void tokens.reload(false), RELOAD_MS).unref();
    return tokens;
  }

  /** Reads the file again, if there is one. Does not reject: `onReload` gets the error. */
  reload: (evenIfUnchanged: boolean) => Promise<void> = async () => {};

  /** The principal of a token by its hash. Compares all tokens, each in constant time. */
  find(hash: Buffer): Principal | undefined {
    let found: Principal | undefined;
    for (const known of this.#known) {
      if (timingSafeEqual(known.hash, hash)) found = known.principal;
    }
    return found;
  }

  close(): void {
    clearInterval(this.#timer);
  }
}

/** The hash of the token in an `Authorization: Bearer …` header. */
export function bearerHash(header: string | undefined): Buffer | undefined {
  const token = /^Bearer +(\S{1,4096})$/i.exec(header ?? "")?.[1];
  return token === undefined ? undefined : createHash("sha256").update(token).digest();
}

/** Reads `{ "tokens": [{ "name", "sha256", "grants": [{ "prefix", "verbs" }] }] }`. */
function parseTokens(text: string, path: string): readonly TokenEntry[] {
  let parsed: unknown;
  try {
    parsed = JSON.parse(text);
  } catch (cause) {
    // Only the position: the message of the parser quotes the text there, which may be a token in place of its hash.
    const place = /position (\d+)/.exec((cause as Error).message)?.[1];
    throw invalid(
      `The token file ${path} is not JSON${place === undefined ? "" : ` from character ${place} on`}.`,
    );
  }
  const entries = (parsed as { tokens?: unknown } | null)?.tokens;
  if (!Array.isArray(entries))
    throw invalid(`The token file ${path} has no list "tokens". Write { "tokens": [ … ] }.`);
  for (const entry of entries) checkEntry(entry as TokenEntry);
  return entries as TokenEntry[];
}

function knownOf(entry: TokenEntry): Known {
  checkEntry(entry);
  const { name, sha256 } = entry;
  const grants = entry.grants.map((grant) => ({ prefix: grant.prefix, verbs: [...grant.verbs] }));
  return { hash: Buffer.from(sha256, "hex"), principal: { name, grants } };
}

function checkEntry(entry: TokenEntry | null): void {
  if (entry === null) throw invalid("A token has no name. Add one in the list of tokens.");
  checkName(entry.name);
  if (typeof entry.sha256 !== "string" || !/^[0-9a-f]{64}$/i.test(entry.sha256)) {
    throw invalid(
      `The token "${entry.name}" needs a sha256 of 64 hexadecimal digits. Make one with holdfast token new.`,
    );
  }
  if (!Array.isArray(entry.grants))
    throw invalid(`The token "${entry.name}" has no list of grants. Add one, even if it is empty.`);
  for (const grant of entry.grants as (Grant | null)[]) {
    if (typeof grant?.prefix !== "string" || !Array.isArray(grant.verbs) || !grant.verbs.every(isVerb)) {
      throw invalid(
        `A grant of the token "${entry.name}" needs a prefix, and verbs out of ${verbs.join(", ")}.`,
      );
    }
  }
}

function isVerb(verb: unknown): verb is Verb {
  return verbs.includes(verb as Verb);
}

async function stampOf(path: string): Promise<string> {
  const { mtimeMs, size, ino } = await stat(path);
  return `${mtimeMs} ${size} ${ino}`;
}
