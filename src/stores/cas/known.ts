/** What this process last knew of a key, so that most changes need no look first. Never an answer by itself. */
import { decodeRecord, emptyRecord, type LockRecord } from "../../record/index.ts";
import type { StoredRecord, Version } from "./driver.ts";

export class Known {
  /** Undefined: there is no record. */
  readonly version: Version | undefined;
  readonly text: string | undefined;
  /** What operations are applied to; not what the text says any more once they were. */
  readonly record: LockRecord;

  constructor(version: Version | undefined, text: string | undefined, record: LockRecord) {
    this.version = version;
    this.text = text;
    this.record = record;
  }
}

/** What a key without a record is. */
export function absent(): Known {
  return new Known(undefined, undefined, emptyRecord());
}

/** Throws `STORE_FAILURE` where the text cannot be understood. */
export function knownFrom(stored: StoredRecord | undefined, key: string): Known {
  if (stored === undefined) return absent();
  const { version, text } = stored;
  return new Known(version, text, decodeRecord(text, key));
}
