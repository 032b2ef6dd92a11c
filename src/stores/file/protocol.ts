/** The messages between the client and the thread that owns the file of a folder. */

/** Passed to the thread when it starts. */
export interface ThreadData {
  readonly folder: string;
  /** Shared with exit-guard.ts. */
  readonly guard: SharedArrayBuffer;
}

export interface ReadRequest {
  readonly verb: "read";
  readonly keys: readonly string[];
}

/** One change for each key. Plain lists, because they are quick to send to a thread. */
export interface SwapRequest {
  readonly verb: "swap";
  readonly keys: readonly string[];
  /** 0: there must be no record. */
  readonly expected: readonly number[];
  /** Undefined: only compare the version. */
  readonly texts: readonly (string | undefined)[];
  readonly keepUntilMs: readonly number[];
  readonly idle: readonly boolean[];
  readonly earliestMs: number;
  readonly latestMs: number;
}

export interface ListRequest {
  readonly verb: "list";
  readonly prefix: string;
  readonly after: string | undefined;
  readonly limit: number;
}

export interface SweepRequest {
  readonly verb: "sweep";
  readonly limit: number;
}

export type Request = ReadRequest | SwapRequest | ListRequest | SweepRequest;

export interface Row {
  readonly version: number;
  readonly text: string;
}

export interface ReadReply {
  readonly nowMs: number;
  readonly rows: readonly (Row | undefined)[];
}

/** The result of a change that was not written. */
export type Outcome =
  | "same"
  | "untimely"
  /** A conflict: the row that the key has. */
  | { readonly current: Row | undefined }
  | { readonly failure: Failure };

export interface SwapReply {
  readonly nowMs: number;
  /** The new version of every key that was written. */
  readonly version: number;
  /** The changes that were not written, by their places in the request. */
  readonly others: readonly (readonly [place: number, outcome: Outcome])[];
}

export interface ListReply {
  readonly nowMs: number;
  readonly rows: readonly { readonly key: string; readonly text: string }[];
}

export interface SweepReply {
  readonly removed: number;
  /** Whether the sweep stopped before it had looked at all records that are due. */
  readonly more: boolean;
}

export interface Replies {
  read: ReadReply;
  swap: SwapReply;
  list: ListReply;
  sweep: SweepReply;
}

export type Reply = Replies[keyof Replies];

/** An error in a form that can be sent between threads. */
export interface Failure {
  /** The name of an errno, the number of an LMDB error, or a code of this store. */
  readonly code: string | number;
  readonly message: string;
}

export interface Message {
  readonly number: number;
  readonly request: Request;
}

export interface Answer {
  readonly number: number;
  readonly reply?: Reply;
  readonly failure?: Failure;
}

export function failureOf(error: unknown): Failure {
  const { code = "UNKNOWN", message = String(error) } = Object(error) as Partial<Failure>;
  return { code, message };
}

/** An error with a code of errors.ts. */
export function codedError(code: string | number, message: string): Error {
  return Object.assign(new Error(message), { code });
}
