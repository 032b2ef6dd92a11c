/** What a client costs that holds very many leases and does nothing but renew them. */
import { Child } from "../child.ts";
import type { Renewals, Stretch } from "./renewals-process.ts";

export interface RenewalsResult {
  /** The same process before it held anything. */
  readonly idle: Stretch;
  /** Stretches of a renewal period each, one after the other. */
  readonly renewing: readonly Stretch[];
}

export interface RenewalsSizes {
  readonly leases: number;
  readonly ttlMs: number;
  readonly periods: number;
}

export async function measureRenewals({ leases, ttlMs, periods }: RenewalsSizes): Promise<RenewalsResult> {
  const periodMs = ttlMs / 3;
  const child = new Child<Renewals>(new URL("renewals-process.js", import.meta.url));
  try {
    await child.call("watch", periodMs / 10);
    const idle = await child.call("watch", periodMs);
    await child.call("hold", { leases, ttlMs });
    // The first heartbeat of each lease does more than the later ones, which are those that go on for ever.
    await child.call("watch", periodMs);
    const renewing: Stretch[] = [];
    while (renewing.length < periods) renewing.push(await child.call("watch", periodMs));
    return { idle, renewing };
  } finally {
    child.stop();
  }
}
