/** The last record of a key that this process saw. Operations are applied to it first; the swap then compares its version. */
import { decodeRecord, emptyRecord, type LockRecord } from "../../record/index.ts";
import type { StoredRecord, Version } from "./driver.ts";

export class CachedRecord {
  /** Undefined: the database has no record. */
  readonly version: Version | undefined;
  readonly text: string | undefined;
  /** Operations change it in place, so afterwards it differs from the text. */
  readonly record: LockRecord;

  constructor(version: Version | undefined, text: string | undefined, record: LockRecord) {
    this.version = version;
    this.text = text;
    this.record = record;
  }
}

export function noRecord(): CachedRecord {
  return new CachedRecord(undefined, undefined, emptyRecord());
}

/** Throws `STORE_FAILURE` if the text cannot be read. */
export function cachedFrom(stored: StoredRecord | undefined, key: string): CachedRecord {
  if (stored === undefined) return noRecord();
  const { version, text } = stored;
  return new CachedRecord(version, text, decodeRecord(text, key));
}
