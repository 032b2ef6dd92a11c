/** Writes and reads the messages of a server: `OpenResponse` in proto/holdfast/v1/session.proto. */
import { create, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import type {
  AcquireAnswer,
  GrantRef,
  HoldfastError,
  LookPage,
  RefusalReason,
  RenewAnswer,
} from "../store/index.ts";
import { errorOf, failureOf } from "./errors.ts";
import { FailureSchema } from "./gen/holdfast/v1/claims_pb.ts";
import {
  GoodbyeSchema,
  LookAnswerSchema,
  ClaimAnswer_State as State,
  type Welcome,
  WelcomeSchema,
} from "./gen/holdfast/v1/session_pb.ts";
import { newFrame, sealFrame } from "./grpc-frames.ts";
import { parse } from "./parse.ts";
import { readPage, wireMs, wirePage } from "./statuses.ts";
import { MalformedMessage, Reader } from "./wire-reader.ts";

/** Collects the parts of one message. */
export class AnswerWriter {
  #writer = newFrame();
  #isEmpty = true;

  get isEmpty(): boolean {
    return this.#isEmpty;
  }

  welcome(fields: MessageInitShape<typeof WelcomeSchema>): void {
    this.#isEmpty = false;
    this.#writer.bytes(1, toBinary(WelcomeSchema, create(WelcomeSchema, fields)));
  }

  goodbye(reason: string): void {
    this.#isEmpty = false;
    this.#writer.bytes(2, toBinary(GoodbyeSchema, create(GoodbyeSchema, { reason })));
  }

  acquired(number: number, answer: AcquireAnswer): void {
    const start = this.#begin(number);
    this.#claim(2, answer);
    this.#writer.end(start);
  }

  renewed(number: number, answers: readonly RenewAnswer[]): void {
    const start = this.#begin(number);
    const list = this.#writer.begin(3);
    for (const answer of answers) this.#claim(1, answer);
    this.#writer.end(list);
    this.#writer.end(start);
  }

  released(number: number, released: readonly boolean[]): void {
    const start = this.#begin(number);
    const list = this.#writer.begin(4);
    this.#writer.bools(1, released);
    this.#writer.end(list);
    this.#writer.end(start);
  }

  looked(number: number, page: LookPage): void {
    const start = this.#begin(number);
    this.#writer.bytes(5, toBinary(LookAnswerSchema, wirePage(page)));
    this.#writer.end(start);
  }

  failed(number: number, error: unknown): void {
    const start = this.#begin(number);
    this.#failure(6, error);
    this.#writer.end(start);
  }

  granted(owner: string, ref: GrantRef): void {
    this.#isEmpty = false;
    const writer = this.#writer;
    const start = writer.begin(4);
    writer.text(1, owner);
    writer.text(2, ref.key);
    writer.text(3, ref.id);
    writer.uint64(4, ref.fence ?? 0n);
    writer.end(start);
  }

  /** Returns the message in its frame, and begins the next one. */
  take(): Buffer {
    const frame = sealFrame(this.#writer.finish());
    this.#writer = newFrame();
    this.#isEmpty = true;
    return frame;
  }

  #begin(number: number): number {
    this.#isEmpty = false;
    const start = this.#writer.begin(3);
    this.#writer.uint32(1, number);
    return start;
  }

  #claim(field: number, answer: AcquireAnswer | RenewAnswer): void {
    const writer = this.#writer;
    const start = writer.begin(field);
    writer.uint32(1, stateOf(answer));
    switch (answer.state) {
      case "held":
        writer.uint64(2, answer.fence);
        writer.integer(3, Math.floor(answer.acquiredAtMs));
        writer.uint32(4, wireMs(answer.expiresInMs));
        break;
      case "waiting":
        writer.uint64(2, answer.fence);
        writer.uint32(4, wireMs(answer.expiresInMs));
        writer.uint32(5, wireMs(Math.ceil(answer.retryInMs)));
        break;
      case "gone":
        writer.text(6, answer.takenOverBy ?? "");
        break;
      case "failed":
        this.#failure(7, answer.error);
        break;
    }
    writer.end(start);
  }

  #failure(field: number, error: unknown): void {
    this.#writer.bytes(field, toBinary(FailureSchema, create(FailureSchema, failureOf(error))));
  }
}

/** Gets the parts of a message. */
export interface AnswerListener {
  welcome(welcome: Welcome): void;
  goodbye(reason: string): void;
  acquired(number: number, answer: AcquireAnswer): void;
  renewed(number: number, answers: readonly RenewAnswer[]): void;
  released(number: number, released: readonly boolean[]): void;
  looked(number: number, page: LookPage): void;
  failed(number: number, error: HoldfastError): void;
  granted(owner: string, ref: GrantRef): void;
}

/** Reads a message. Throws MalformedMessage after passing on the parts before the invalid one. */
export function readAnswers(bytes: Buffer, listener: AnswerListener): void {
  const reader = new Reader(bytes);
  for (let field = reader.field(); field !== 0; field = reader.field()) {
    if (field === 3) readAnswer(reader, listener);
    else if (field === 4) readGranted(reader, listener);
    else if (field === 1) listener.welcome(parse(WelcomeSchema, reader.bytes()));
    else if (field === 2) listener.goodbye(parse(GoodbyeSchema, reader.bytes()).reason);
    else reader.skip();
  }
}

function readAnswer(reader: Reader, listener: AnswerListener): void {
  const outer = reader.enter();
  let number = 0;
  for (let field = reader.field(); field !== 0; field = reader.field()) {
    if (field === 1) number = reader.uint32();
    else if (field === 2) listener.acquired(number, acquireAnswer(readClaim(reader)));
    else if (field === 3) listener.renewed(number, readRenewed(reader));
    else if (field === 4) listener.released(number, readReleased(reader));
    else if (field === 5) listener.looked(number, readPage(parse(LookAnswerSchema, reader.bytes())));
    else if (field === 6) listener.failed(number, errorOf(parse(FailureSchema, reader.bytes())));
    else reader.skip();
  }
  reader.leave(outer);
}

/** The answer for a claim, of any verb. */
interface ReadClaim {
  state: number;
  fence: bigint;
  acquiredAtMs: number;
  expiresInMs: number;
  retryInMs: number;
  takenOverBy: string;
  error: HoldfastError | undefined;
}

function readClaim(reader: Reader): ReadClaim {
  const outer = reader.enter();
  const claim: ReadClaim = {
    state: 0,
    fence: 0n,
    acquiredAtMs: 0,
    expiresInMs: 0,
    retryInMs: 0,
    takenOverBy: "",
    error: undefined,
  };
  for (let field = reader.field(); field !== 0; field = reader.field()) {
    if (field === 1) claim.state = reader.uint32();
    else if (field === 2) claim.fence = reader.uint64();
    else if (field === 3) claim.acquiredAtMs = reader.integer();
    else if (field === 4) claim.expiresInMs = reader.uint32();
    else if (field === 5) claim.retryInMs = reader.uint32();
    else if (field === 6) claim.takenOverBy = reader.text();
    else if (field === 7) claim.error = errorOf(parse(FailureSchema, reader.bytes()));
    else reader.skip();
  }
  reader.leave(outer);
  return claim;
}

function acquireAnswer(claim: ReadClaim): AcquireAnswer {
  const { fence, acquiredAtMs, expiresInMs, retryInMs } = claim;
  if (claim.state === State.HELD) return { state: "held", fence, acquiredAtMs, expiresInMs };
  if (claim.state === State.WAITING) return { state: "waiting", expiresInMs, retryInMs, fence };
  const reason = refusals.get(claim.state);
  if (reason === undefined) throw new MalformedMessage("The answer to an acquire has an unknown state.");
  return { state: "refused", reason };
}

function renewAnswer(claim: ReadClaim): RenewAnswer {
  const { fence, acquiredAtMs, expiresInMs, retryInMs, takenOverBy } = claim;
  switch (claim.state) {
    case State.HELD:
      return { state: "held", fence, acquiredAtMs, expiresInMs };
    case State.WAITING:
      return { state: "waiting", expiresInMs, retryInMs, fence };
    case State.GONE:
      return { state: "gone" };
    case State.TAKEN_OVER:
      return { state: "gone", takenOverBy };
    case State.FAILED:
      return { state: "failed", error: claim.error };
    default:
      throw new MalformedMessage("The answer to a renewal has an unknown state.");
  }
}

function readRenewed(reader: Reader): RenewAnswer[] {
  const outer = reader.enter();
  const answers: RenewAnswer[] = [];
  for (let field = reader.field(); field !== 0; field = reader.field()) {
    if (field === 1) answers.push(renewAnswer(readClaim(reader)));
    else reader.skip();
  }
  reader.leave(outer);
  return answers;
}

function readReleased(reader: Reader): boolean[] {
  const outer = reader.enter();
  const released: boolean[] = [];
  for (let field = reader.field(); field !== 0; field = reader.field()) {
    if (field === 1) reader.bools(released);
    else reader.skip();
  }
  reader.leave(outer);
  return released;
}

function readGranted(reader: Reader, listener: AnswerListener): void {
  const outer = reader.enter();
  let owner = "";
  let key = "";
  let id = "";
  let fence = 0n;
  for (let field = reader.field(); field !== 0; field = reader.field()) {
    if (field === 1) owner = reader.text();
    else if (field === 2) key = reader.text();
    else if (field === 3) id = reader.text();
    else if (field === 4) fence = reader.uint64();
    else reader.skip();
  }
  reader.leave(outer);
  listener.granted(owner, fence === 0n ? { key, id } : { key, id, fence });
}

const refusalStates: Readonly<Record<RefusalReason, State>> = {
  contended: State.CONTENDED,
  "queue-full": State.QUEUE_FULL,
  "id-reused": State.ID_REUSED,
};

const refusals = new Map(
  Object.entries(refusalStates).map(([reason, state]) => [state as number, reason as RefusalReason]),
);

function stateOf(answer: AcquireAnswer | RenewAnswer): State {
  switch (answer.state) {
    case "held":
      return State.HELD;
    case "waiting":
      return State.WAITING;
    case "refused":
      return refusalStates[answer.reason];
    case "gone":
      return answer.takenOverBy === undefined ? State.GONE : State.TAKEN_OVER;
    case "failed":
      return State.FAILED;
  }
}
