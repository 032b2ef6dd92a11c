/** How a grant to another process is written into a notification. */
import { createHash } from "node:crypto";

/**
 * The channel of one client. Names of channels are cut at 63 bytes and owners may be longer, so it is a digest; and a server
 * sends a notification only over those connections that listen to its channel.
 */
export function channelOf(owner: string): string {
  return `holdfast_${createHash("sha256").update(owner).digest("hex").slice(0, 32)}`;
}

/** A notification takes 8,000 bytes. Key and id have 640 at the most, and JSON makes at most two of each. */
export function payloadOf(key: string, id: string): string {
  return JSON.stringify([key, id]);
}

/** Undefined for what is not ours: everybody in the database may notify on any channel. */
export function readPayload(payload: string | undefined): { key: string; id: string } | undefined {
  try {
    const [key, id] = JSON.parse(payload ?? "null") as unknown[];
    return typeof key === "string" && typeof id === "string" ? { key, id } : undefined;
  } catch {
    return undefined;
  }
}
