/**
 * The audit log: lines in the server's log that name the caller, the event and the claim, also of refused calls.
 *
 * The lines of each principal are bounded, and those of all unknown callers together. Lines beyond the bound are counted.
 */
import type { Logger } from "pino";
import type { ClaimRef } from "../store/index.ts";
import { Forbidden, type Verb } from "./access.ts";
import { UnknownCaller } from "./call-errors.ts";
import type { Requester } from "./callers.ts";
import type { HostRefusal } from "./host-check.ts";
import { hostOf, type Peer } from "./peer.ts";

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

/** The limit of lines per second, event and principal. */
export const auditLinesPerSecond: Readonly<Record<AuditEvent, number>> = {
  refused: 10,
  "force-release": 100,
  granted: 1_000,
  released: 1_000,
  lost: 1_000,
};

/** Longer texts of clients are cut. Keys and ids are shorter. */
const MAX_CHARACTERS = 512;

export class Audit {
  readonly #logger: Logger;
  /** Whether grants, releases and losses are logged. Callers check this first: it is off on most servers. */
  readonly logsClaims: boolean;
  /** Lines of this second. */
  readonly #counts = new Map<string, { event: AuditEvent; principal: string | undefined; lines: number }>();

  constructor(logger: Logger, logsClaims: boolean) {
    this.#logger = logger;
    this.logsClaims = logsClaims;
  }

  /** Logs a failure of a call whose caller lacked the right to it. */
  failed(error: unknown, requester: Partial<Requester>): void {
    if (error instanceof UnknownCaller) this.#write("refused", requester, { reason: "unknown-token" });
    else if (error instanceof Forbidden) {
      const { verb, key, id } = error;
      this.#write("refused", requester, { reason: "not-permitted", verb, key, id });
    }
  }

  foreign(reason: HostRefusal["reason"], peer: Peer): void {
    this.#write("refused", { peer }, { reason });
  }

  forced(ref: ClaimRef, requester: Requester, outcome: Details["outcome"] & string, fence?: bigint): void {
    this.#write("force-release", requester, { key: ref.key, id: ref.id, fence, outcome });
  }

  claim(event: ClaimEvent, { key, id }: ClaimRef, requester: Requester, fence: bigint | undefined): void {
    if (this.logsClaims) this.#write(event, requester, { key, id, fence });
  }

  /** Begins the next second, and logs how many lines the last one left out. */
  nextSecond(): void {
    for (const { event, principal, lines } of this.#counts.values()) {
      const leftOut = lines - auditLinesPerSecond[event];
      if (leftOut <= 0) continue;
      const line = { audit: "left-out", of: event, principal: printable(principal), lines: leftOut };
      this.#logger.warn(line, "audit");
    }
    this.#counts.clear();
  }

  #write(event: AuditEvent, { client, peer }: Partial<Requester>, details: Details): void {
    const principal = client?.principal;
    if (!this.#admit(event, principal)) return;
    const { key, id, fence, ...others } = details;
    const line = {
      audit: event,
      ...others,
      principal: printable(principal),
      address: peer && (peer.port === undefined ? peer.address : `${hostOf(peer)}:${peer.port}`),
      certificate: printable(peer?.certificate),
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

/** Escapes invisible characters, so that a client cannot send control codes to the terminal that shows the log. */
function printable(text: string | undefined): string | undefined {
  if (text === undefined) return undefined;
  const cut = text.length > MAX_CHARACTERS ? `${text.slice(0, MAX_CHARACTERS)}…` : text;
  return cut.replace(/[\\\p{C}\p{Zl}\p{Zp}]/gu, (character) =>
    character === "\\" ? "\\\\" : `\\u{${character.codePointAt(0)?.toString(16)}}`,
  );
}
