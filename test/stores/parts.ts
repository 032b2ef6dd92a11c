/** What a process of a store is started for, by the word that the test gives it. */
import type { Store } from "holdfast";
import { takeTurns } from "./turn-taker.ts";
import { writeWhileHeld } from "./writing-holder.ts";

export async function playPart(part: string | undefined, store: Store, ttlMs: number): Promise<void> {
  await (part === "take turns" ? takeTurns(store, ttlMs) : writeWhileHeld(store, ttlMs));
}
