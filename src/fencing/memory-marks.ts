/** Marks that end with the process. */
import { HoldfastError } from "../store/index.ts";
import type { FenceMarks } from "./gate.ts";

export class MemoryMarks implements FenceMarks {
  readonly #marks = new Map<string, bigint>();
  readonly #max: number;

  constructor(max: number) {
    this.#max = max;
  }

  load(resource: string): bigint | undefined {
    return this.#marks.get(resource);
  }

  save(resource: string, fence: bigint): void {
    if (!this.#marks.has(resource)) checkRoom(this.#marks.size, this.#max, resource);
    this.#marks.set(resource, fence);
  }
}

/** A mark must not be dropped to make room for another one, so there is an end to them. */
export function checkRoom(count: number, max: number, resource: string): void {
  if (count < max) return;
  throw new HoldfastError(
    "STORE_FAILURE",
    `The gate has marks for ${count} resources, so it does not accept "${resource}". Raise maxResources, or use fewer names.`,
    { key: resource },
  );
}
