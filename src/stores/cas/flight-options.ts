import type { Clock } from "../../platform/index.ts";
import type { LockRecord } from "../../record/index.ts";
import type { CasDriver } from "./driver.ts";
import type { Answer, Asked, CombineOptions } from "./operation.ts";
import type { TimeSource } from "./server-time.ts";

/** What `Flights` is made of. */
export interface FlightOptions {
  readonly driver: CasDriver;
  /** To be awaited before the first request, which is one that tells the time. */
  readonly prepare: () => Promise<void>;
  readonly clock: Clock;
  readonly random: () => number;
  readonly time: TimeSource;
  readonly combine: CombineOptions;
  readonly maxFlights: number;
  readonly maxChanges: number;
  readonly maxBatchBytes: number;
  readonly cachedKeys: number;
  /** How late the server may make a change, and how long its answer is waited for. */
  readonly flightMs: number;
  /** How long an operation is tried again while others keep changing the key. */
  readonly giveUpMs: number;
  /** Told of every answer just before it is given, with the record that it came from. */
  onAnswer(key: string, asked: Asked, answer: Answer, record: LockRecord): void;
  /** Told of every record that the server certainly has. */
  onRecord(key: string, record: LockRecord): void;
  /** Told of records that were written, the last of which has to be kept for so long. */
  onWritten(keepMs: number): void;
}
