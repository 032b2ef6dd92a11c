/** How a grant to another process is written into a notification. */
import { createHash } from "node:crypto";
import type { Wake } from "../cas/index.ts";

/**
 * The channel of one client. Names of channels are cut at 63 bytes and owners may be longer, so it is a digest; and a server
 * sends a notification only over those connections that listen to its channel.
 */
export function channelOf(owner: string): string {
  return `holdfast_${createHash("sha256").update(owner).digest("hex").slice(0, 32)}`;
}

/** A notification takes 8,000 bytes. Key and id have 640 at the most, of which JSON makes twice as many, and a fence has 20. */
export function payloadOf(key: string, { id, fence }: Wake): string {
  return JSON.stringify([key, id, String(fence)]);
}

export interface ReadWake {
  readonly key: string;
  readonly id: string;
  readonly fence: bigint;
}

/** Undefined for what is not ours: everybody in the database may notify on any channel that they can name. */
export function readPayload(payload: string | undefined): ReadWake | undefined {
  try {
    const [key, id, fence] = JSON.parse(payload ?? "null") as unknown[];
    if (typeof key !== "string" || typeof id !== "string") return undefined;
    return typeof fence === "string" && /^\d{1,20}$/.test(fence)
      ? { key, id, fence: BigInt(fence) }
      : undefined;
  } catch {
    return undefined;
  }
}
