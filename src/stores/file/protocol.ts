/** What the store and the thread that owns the files say to each other. */
import type { PackedChanges } from "./change-format.js";

/** What a thread is started with. */
export interface ThreadData {
  readonly folder: string;
  /** Keeps the process from ending in the middle of a transaction: gate.js. */
  readonly gate: SharedArrayBuffer;
}

export interface ReadRequest {
  readonly verb: "read";
  readonly keys: readonly string[];
}

export interface SwapRequest extends PackedChanges {
  readonly verb: "swap";
  readonly earliestMs: number;
  readonly latestMs: number;
  /** Those who may have to be woken, each once. */
  readonly owners: readonly string[];
  /**
   * It may be answered before it is on the disk, if the time that is there is at least this: from it, time goes on after a loss of
   * power. Undefined: it may not.
   */
  readonly forgettableFromMs: number | undefined;
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

/** An owner can be woken through this socket from now on. */
export interface RegisterRequest {
  readonly verb: "register";
  readonly owner: string;
  readonly socket: string;
}

/** Nobody can be woken through this socket any more: the owner named, or all. */
export interface ForgetRequest {
  readonly verb: "forget";
  readonly socket: string;
  readonly owner?: string;
}

/** Which sockets there are. */
export interface SocketsRequest {
  readonly verb: "sockets";
}

export type Request =
  | ReadRequest
  | SwapRequest
  | ListRequest
  | SweepRequest
  | RegisterRequest
  | ForgetRequest
  | SocketsRequest;

export interface Row {
  readonly version: number;
  readonly text: string;
}

export interface ReadReply {
  readonly nowMs: number;
  readonly rows: readonly (Row | undefined)[];
}

/** What became of a change that was not made together with the others of its request. */
export type Outcome =
  /** It was made by itself, and has this version. */
  | number
  | "same"
  | "untimely"
  /** The row that is there instead. */
  | { readonly current: Row | undefined }
  | { readonly failure: Failure };

export interface SwapReply {
  readonly nowMs: number;
  /** What all changes have that were made, but for the others. */
  readonly version: number;
  /** By their places in the request. */
  readonly others: readonly (readonly [place: number, outcome: Outcome])[];
  /** The sockets of the owners that were named; undefined for one whom nobody knows. */
  readonly sockets: readonly (string | undefined)[];
}

export interface ListReply {
  readonly nowMs: number;
  readonly rows: readonly { readonly key: string; readonly text: string }[];
}

export interface SweepReply {
  readonly removed: number;
  /** Whether it stopped before all that is due was looked at. */
  readonly more: boolean;
}

export interface SocketsReply {
  readonly sockets: readonly string[];
}

/** The reply to each kind of request. */
export interface Replies {
  read: ReadReply;
  swap: SwapReply;
  list: ListReply;
  sweep: SweepReply;
  register: undefined;
  forget: undefined;
  sockets: SocketsReply;
}

export type Reply = Replies[keyof Replies];

/** Why a request failed, in the form in which it can cross to another thread. */
export interface Failure {
  /** An errno by name, a code of LMDB by number, or a word of the thread's own. */
  readonly code: string | number;
  readonly message: string;
}

export interface Letter {
  readonly number: number;
  readonly request: Request;
}

export interface Answer {
  readonly number: number;
  readonly reply?: Reply;
  readonly failure?: Failure;
}

/** How the thread fares with the folder. */
export interface Pace {
  /** How long the disk took for the latest change, in milliseconds. */
  readonly diskMs: number;
  /** Whether no other process seems to use the folder. */
  readonly isAlone: boolean;
}

/** Answers that go out together. */
export interface Post extends Pace {
  readonly answers: readonly Answer[];
}
