/** What the parts of this example tell each other, besides what the store's adapter sends. */

/** The job and its parts. Every part takes a while, so that there is time to kill whoever is at it. */
export const job = { key: "nightly-report", parts: 8, partMs: 300, ttlMs: 2_000 } as const;

/** What a replica tells the demo, in the order in which it happens. */
export type ReplicaEvent =
  | { readonly type: "event"; readonly event: "waiting" }
  | { readonly type: "event"; readonly event: "running"; readonly fence: bigint }
  /** Writes down a part of the job, under the fence of the lease that it was done with. */
  | { readonly type: "event"; readonly event: "part"; readonly part: number; readonly fence: bigint }
  | { readonly type: "event"; readonly event: "finished"; readonly fence: bigint };

/** What the demo tells a replica that has begun: how far the job has come. */
export interface Progress {
  readonly type: "progress";
  readonly partsDone: number;
}

export function isReplicaEvent(message: unknown): message is ReplicaEvent {
  return isOfType(message, "event");
}

export function isProgress(message: unknown): message is Progress {
  return isOfType(message, "progress");
}

function isOfType(message: unknown, type: string): boolean {
  return typeof message === "object" && message !== null && "type" in message && message.type === type;
}
