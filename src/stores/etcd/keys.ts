/** Where things are in etcd. All keys begin with the store's prefix. */
import { createHash } from "node:crypto";

const ZERO = Buffer.from([0]);

export class Keys {
  readonly #prefix: string;
  readonly #records: Buffer;
  /** Below it is a key for each etcd lease that lives. */
  readonly leases: Buffer;
  /** Written by every sweep, so that its revision tells when records were last removed. */
  readonly swept: Buffer;
  /** There while the last sweep was not long ago. */
  readonly sweepPause: Buffer;

  constructor(prefix: string) {
    this.#prefix = prefix;
    this.#records = Buffer.from(`${prefix}/r/`);
    this.leases = Buffer.from(`${prefix}/a/`);
    this.swept = Buffer.from(`${prefix}/f`);
    this.sweepPause = Buffer.from(`${prefix}/s`);
  }

  record(key: string): Buffer {
    return Buffer.from(`${this.#prefix}/r/${key}`);
  }

  /** The key that a lock record stands for. */
  keyOf(record: Buffer): string {
    return record.toString("utf8", this.#records.length);
  }

  lease(name: string): Buffer {
    return Buffer.from(`${this.#prefix}/a/${name}`);
  }

  leaseOf(key: Buffer): string {
    return key.toString("utf8", this.leases.length);
  }

  /** What all wake-ups of an owner begin with. Owners are any text, so one could begin another. */
  wakes(owner: string): Buffer {
    const digest = createHash("sha256").update(owner).digest("hex").slice(0, 32);
    return Buffer.from(`${this.#prefix}/w/${digest}/`);
  }

  wake(owner: string, key: string): Buffer {
    return Buffer.concat([this.wakes(owner), Buffer.from(key)]);
  }
}

/** The first key after all that begin with this. */
export function endOf(prefix: Buffer): Buffer {
  const end = Buffer.from(prefix);
  for (let at = end.length - 1; at >= 0; at--) {
    const byte = end[at] as number;
    if (byte < 0xff) {
      end[at] = byte + 1;
      return end.subarray(0, at + 1);
    }
  }
  return ZERO;
}

/** The first key after this one. */
export function after(key: Buffer): Buffer {
  return Buffer.concat([key, ZERO]);
}
