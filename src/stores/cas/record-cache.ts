/** What this process last knew of each key, so that most changes need no look first. Never an answer by itself. */
import { decodeRecord, emptyRecord, type LockRecord } from "../../core/index.ts";
import type { StoredRecord, Version } from "./driver.ts";

export interface Known {
  /** Undefined: there is no record. */
  readonly version: Version | undefined;
  readonly text: string | undefined;
  /** What operations are applied to; not what the text says any more once they were. */
  readonly record: LockRecord;
}

/** What a key without a record is. */
function absent(): Known {
  return { version: undefined, text: undefined, record: emptyRecord() };
}

/** Throws `STORE_FAILURE` where the text cannot be understood. */
export function knownFrom(stored: StoredRecord | undefined, key: string): Known {
  if (stored === undefined) return absent();
  const { version, text } = stored;
  return { version, text, record: decodeRecord(text, key) };
}

interface Slot {
  known: Known | undefined;
  /** Whether it was used since it was last passed over. */
  used: boolean;
}

/** Keeps about as many keys as it may, those that were used lately. */
export class RecordCache {
  readonly #maxKeys: number;
  readonly #slots = new Map<string, Slot>();

  constructor(maxKeys: number) {
    this.#maxKeys = maxKeys;
  }

  get size(): number {
    return this.#slots.size;
  }

  /**
   * Takes what is known of a key out: whoever applies operations to it changes it, so it is either replaced by what came of
   * that, or it is not known any more. A key that is not known is guessed to be absent.
   */
  take(key: string): { known: Known; isGuess: boolean } {
    const slot = this.#slots.get(key);
    const known = slot?.known;
    if (slot !== undefined) slot.known = undefined;
    return { known: known ?? absent(), isGuess: known === undefined };
  }

  peek(key: string): Known | undefined {
    return this.#slots.get(key)?.known;
  }

  put(key: string, known: Known): void {
    const slot = this.#slots.get(key);
    if (slot === undefined) {
      this.#slots.set(key, { known, used: false });
      if (this.#slots.size > this.#maxKeys) this.#evict();
    } else {
      slot.known = known;
      slot.used = true;
    }
  }

  clear(): void {
    this.#slots.clear();
  }

  /**
   * Whoever was used since last time is passed over once. Moving a key to the end with each use would be exact, and slow:
   * docs/decisions/0004-finding-claims-by-id.md says what a Map makes of keys that come and go.
   */
  #evict(): void {
    for (const [key, slot] of this.#slots) {
      this.#slots.delete(key);
      if (!slot.used) return;
      slot.used = false;
      this.#slots.set(key, slot);
    }
  }
}
