import type { ClaimRequest } from "../../src/store/store.ts";

/** A plain mutex request that waits, for tests to name only what they are about. */
export function claimRequest(id: string, asked: Partial<ClaimRequest> = {}): ClaimRequest {
  return {
    key: "k",
    id,
    token: id,
    weight: 1,
    limit: 1,
    priority: 0,
    ttlMs: 100,
    wait: true,
    owner: "",
    info: "",
    application: "",
    ...asked,
  };
}
