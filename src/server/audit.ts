/**
 * The audit log: lines in the server's log that say who did what to which claim, and who was refused for want of rights.
 *
 * The lines of each principal are bounded, those of unknown callers together. Lines beyond the bound are counted.
 */
import type { Logger } from "pino";
import type { ClaimRef } from "../store/index.ts";
import { Forbidden, type Verb } from "./access.ts";
import { UnknownCaller } from "./call-errors.ts";
import type { HostRefusal } from "./host-check.ts";
import type { Client } from "./ledger.ts";
import { hostOf, type Source } from "./source.ts";

/** Who asks. The source is missing if the server asks on behalf of a caller. */
export interface Asker {
  readonly client: Client;
  readonly source?: Source | undefined;
}

export type ClaimEvent = "granted" | "released" | "lost";

type AuditEvent = ClaimEvent | "refused" | "force-release";

interface Details {
  readonly reason?: "unknown-token" | "not-permitted" | HostRefusal["reason"];
  readonly verb?: Verb;
  readonly key?: string | undefined;
  readonly id?: string | undefined;
  readonly fence?: bigint | undefined;
  readonly outcome?: "released" | "not-found" | "failed";
}

/** The most lines a second, of each event and principal. */
export const auditLinesPerSecond: Readonly<Record<AuditEvent, number>> = {
  refused: 10,
  "force-release": 100,
  granted: 1_000,
  released: 1_000,
  lost: 1_000,
};

/** The most characters of a text that a client sent. A key and an id have fewer. */
const MAX_CHARACTERS = 512;

export class Audit {
  readonly #logger: Logger;
  readonly #withClaims: boolean;
  /** The lines of this second. */
  readonly #counts = new Map<string, { event: AuditEvent; principal: string | undefined; lines: number }>();

  constructor(logger: Logger, withClaims: boolean) {
    this.#logger = logger;
    this.#withClaims = withClaims;
  }

  /** A call failed. Logs it if the caller had no right to it. */
  failed(error: unknown, asker: Partial<Asker>): void {
    if (error instanceof UnknownCaller) this.#write("refused", asker, { reason: "unknown-token" });
    else if (error instanceof Forbidden) {
      const { verb, key, id } = error;
      this.#write("refused", asker, { reason: "not-permitted", verb, key, id });
    }
  }

  foreign(reason: HostRefusal["reason"], source: Source): void {
    this.#write("refused", { source }, { reason });
  }

  forced(ref: ClaimRef, asker: Asker, outcome: Details["outcome"] & string, fence?: bigint): void {
    this.#write("force-release", asker, { key: ref.key, id: ref.id, fence, outcome });
  }

  claim(event: ClaimEvent, { key, id }: ClaimRef, asker: Asker, fence: bigint | undefined): void {
    if (this.#withClaims) this.#write(event, asker, { key, id, fence });
  }

  /** Begins the next second, and tells how many lines the last one left out. */
  nextSecond(): void {
    for (const { event, principal, lines } of this.#counts.values()) {
      const leftOut = lines - auditLinesPerSecond[event];
      if (leftOut <= 0) continue;
      const line = { audit: "left-out", of: event, principal: printable(principal), lines: leftOut };
      this.#logger.warn(line, "audit");
    }
    this.#counts.clear();
  }

  #write(event: AuditEvent, { client, source }: Partial<Asker>, details: Details): void {
    const principal = client?.principal;
    if (!this.#admit(event, principal)) return;
    const { key, id, fence, ...others } = details;
    const line = {
      audit: event,
      ...others,
      principal: printable(principal),
      address: source && (source.port === undefined ? source.address : `${hostOf(source)}:${source.port}`),
      certificate: printable(source?.certificate),
      key: printable(key),
      id: printable(id),
      fence: fence?.toString(),
    };
    if (event === "refused" || event === "force-release") this.#logger.warn(line, "audit");
    else this.#logger.info(line, "audit");
  }

  #admit(event: AuditEvent, principal: string | undefined): boolean {
    const name = `${event} ${principal ?? ""}`;
    const count = this.#counts.get(name) ?? { event, principal, lines: 0 };
    this.#counts.set(name, count);
    return ++count.lines <= auditLinesPerSecond[event];
  }
}

/** Writes invisible characters as escapes, so that a client cannot command the terminal that shows the log. */
function printable(text: string | undefined): string | undefined {
  if (text === undefined) return undefined;
  const cut = text.length > MAX_CHARACTERS ? `${text.slice(0, MAX_CHARACTERS)}…` : text;
  return cut.replace(/[\\\p{C}\p{Zl}\p{Zp}]/gu, (character) =>
    character === "\\" ? "\\\\" : `\\u{${character.codePointAt(0)?.toString(16)}}`,
  );
}
