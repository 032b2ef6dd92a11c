import { newClaimIds } from "./claim-ids.ts";
import type { ClaimRequest } from "./store.ts";

/**
 * A request of this client, made of what has been checked: no store need check it again, which would be a tenth of a lock cycle.
 * Whoever wants another one makes a copy, which is checked like any other.
 *
 * A class, because V8 allocates a plain literal among the old objects once most of its kind live long: new-record.ts.
 */
export class NewRequest implements ClaimRequest {
  readonly key: string;
  readonly id: string;
  readonly token: string;
  readonly weight: number;
  readonly limit: number;
  readonly priority: number;
  readonly ttlMs: number;
  readonly wait: boolean;
  readonly owner: string;
  readonly info: string;
  readonly application: string;

  constructor(
    lock: { readonly key: string; readonly limit: number },
    client: { readonly owner: string; readonly settings: { readonly application: string } },
    settings: { readonly ttlMs: number },
    options: Partial<Pick<ClaimRequest, "id" | "token" | "priority" | "info" | "application">> & {
      readonly permits?: number;
    },
    wait: boolean,
  ) {
    const made = newClaimIds();
    this.key = lock.key;
    this.id = options.id ?? made.id;
    this.token = options.token ?? made.token;
    this.weight = options.permits ?? 1;
    this.limit = lock.limit;
    this.priority = options.priority ?? 0;
    this.ttlMs = settings.ttlMs;
    this.wait = wait;
    this.owner = client.owner;
    this.info = options.info ?? "";
    this.application = options.application ?? client.settings.application;
  }
}
