/** Writes and reads the messages of a client: `OpenRequest` in proto/holdfast/v1/session.proto. */
import { create, toBinary } from "@bufbuild/protobuf";
import { bounds, type ClaimRef, type ClaimRequest, type LookQuery, type RenewRef } from "../store/index.ts";
import { type Hello, HelloSchema, LookOperationSchema } from "./gen/holdfast/v1/session_pb.ts";
import { newFrame, sealFrame } from "./grpc-frames.ts";
import { parse } from "./parse.ts";
import { readLimit, wireLimit } from "./statuses.ts";
import { MalformedMessage, Reader } from "./wire-reader.ts";
import type { Writer } from "./wire-writer.ts";

/** The longest text is an info. The longest look has a prefix and a cursor, which is little longer than a key. */
const MAX_TEXT_BYTES = bounds.infoBytes;
const MAX_LOOK_BYTES = 4_096;

export type Operation =
  | { readonly number: number; readonly verb: "acquire"; readonly request: ClaimRequest }
  | { readonly number: number; readonly verb: "renew"; readonly refs: readonly RenewRef[] }
  | { readonly number: number; readonly verb: "release"; readonly refs: readonly ClaimRef[] }
  | { readonly number: number; readonly verb: "look"; readonly query: LookQuery };

export interface RequestMessage {
  readonly hello: Hello | undefined;
  readonly listen: readonly string[];
  readonly unlisten: readonly string[];
  readonly operations: readonly Operation[];
}

/** Collects the parts of one message. */
export class RequestWriter {
  #writer = newFrame();
  /** The terms in the message, which operations share. Most messages have one. */
  #terms: ClaimRequest[] = [];
  #isEmpty = true;

  get isEmpty(): boolean {
    return this.#isEmpty;
  }

  get bytes(): number {
    return this.#writer.length;
  }

  hello(version: number, agent: string): void {
    this.#isEmpty = false;
    this.#writer.bytes(1, toBinary(HelloSchema, create(HelloSchema, { version, agent })));
  }

  listen(owner: string): void {
    this.#isEmpty = false;
    this.#writer.element(2, owner);
  }

  unlisten(owner: string): void {
    this.#isEmpty = false;
    this.#writer.element(3, owner);
  }

  acquire(number: number, request: ClaimRequest): void {
    const place = this.#placeOf(request);
    const writer = this.#writer;
    const operation = this.#begin(number);
    const verb = writer.begin(2);
    writer.uint32(1, place);
    writer.text(2, request.key);
    writer.text(3, request.id);
    writer.text(4, request.token);
    writer.bool(5, request.wait);
    writer.end(verb);
    writer.end(operation);
  }

  renew(number: number, refs: readonly RenewRef[]): void {
    const writer = this.#writer;
    const operation = this.#begin(number);
    const verb = writer.begin(3);
    for (const ref of refs) {
      const start = writer.begin(1);
      writeRef(writer, ref);
      writer.uint32(4, ref.ttlMs ?? 0);
      writer.end(start);
    }
    writer.end(verb);
    writer.end(operation);
  }

  release(number: number, refs: readonly ClaimRef[]): void {
    const writer = this.#writer;
    const operation = this.#begin(number);
    const verb = writer.begin(4);
    for (const ref of refs) {
      const start = writer.begin(1);
      writeRef(writer, ref);
      writer.end(start);
    }
    writer.end(verb);
    writer.end(operation);
  }

  look(number: number, query: LookQuery): void {
    const { maxClaims } = query;
    const message =
      "key" in query
        ? create(LookOperationSchema, { what: { case: "key", value: query.key }, maxClaims })
        : create(LookOperationSchema, {
            what: { case: "prefix", value: query.prefix },
            cursor: query.cursor ?? "",
            limit: query.limit,
            maxClaims,
          });
    const operation = this.#begin(number);
    this.#writer.bytes(5, toBinary(LookOperationSchema, message));
    this.#writer.end(operation);
  }

  /** Returns the message in its frame, and begins the next one. */
  take(): Buffer {
    const frame = sealFrame(this.#writer.finish());
    this.#writer = newFrame();
    this.#terms = [];
    this.#isEmpty = true;
    return frame;
  }

  #begin(number: number): number {
    this.#isEmpty = false;
    const start = this.#writer.begin(5);
    this.#writer.uint32(1, number);
    return start;
  }

  #placeOf(request: ClaimRequest): number {
    // Compares only the last four, of which the latest nearly always matches.
    for (let place = this.#terms.length - 1; place >= 0 && place >= this.#terms.length - 4; place--) {
      if (haveSameTerms(request, this.#terms[place] as ClaimRequest)) return place;
    }
    const writer = this.#writer;
    const start = writer.begin(4);
    writer.integer(1, request.weight);
    writer.integer(2, wireLimit(request.limit));
    writer.uint32(3, request.priority);
    writer.uint32(4, request.ttlMs);
    writer.text(5, request.owner);
    writer.text(6, request.info);
    writer.text(7, request.application);
    writer.end(start);
    return this.#terms.push(request) - 1;
  }
}

/** Reads a message. Throws MalformedMessage, also for more operations than the limit. */
export function readRequest(bytes: Buffer, maxOperations: number): RequestMessage {
  const reader = new Reader(bytes, MAX_TEXT_BYTES);
  const listen: string[] = [];
  const unlisten: string[] = [];
  const terms: Terms[] = [];
  const operations: Operation[] = [];
  let hello: Hello | undefined;
  let refs = 0;
  for (let field = reader.field(); field !== 0; field = reader.field()) {
    if (field === 5) {
      const operation = readOperation(reader, terms);
      operations.push(operation);
      refs += "refs" in operation ? Math.max(1, operation.refs.length) : 1;
      if (refs > maxOperations)
        throw new MalformedMessage(`A message has more than ${maxOperations} operations.`);
    } else if (field === 4) terms.push(readTerms(reader));
    else if (field === 2) listen.push(reader.text());
    else if (field === 3) unlisten.push(reader.text());
    else if (field === 1) hello = parse(HelloSchema, reader.bytes());
    else reader.skip();
    if (listen.length + unlisten.length + terms.length > maxOperations) {
      throw new MalformedMessage(`A message has more than ${maxOperations} parts.`);
    }
  }
  return { hello, listen, unlisten, operations };
}

type Terms = Pick<ClaimRequest, "weight" | "limit" | "priority" | "ttlMs" | "owner" | "info" | "application">;

function readOperation(reader: Reader, terms: readonly Terms[]): Operation {
  const outer = reader.enter();
  let operation: Operation | undefined;
  let number = 0;
  for (let field = reader.field(); field !== 0; field = reader.field()) {
    if (field === 1) number = reader.uint32();
    else if (field === 2) operation = { number, verb: "acquire", request: readAcquire(reader, terms) };
    else if (field === 3) operation = { number, verb: "renew", refs: readRefs(reader) };
    else if (field === 4) operation = { number, verb: "release", refs: readRefs(reader) };
    else if (field === 5) operation = { number, verb: "look", query: readQuery(reader.bytes()) };
    else reader.skip();
  }
  reader.leave(outer);
  if (operation === undefined || number === 0) {
    throw new MalformedMessage("An operation has no number, or an unknown verb.");
  }
  return operation.number === number ? operation : { ...operation, number };
}

function readAcquire(reader: Reader, allTerms: readonly Terms[]): ClaimRequest {
  const outer = reader.enter();
  let place = 0;
  let key = "";
  let id = "";
  let token = "";
  let wait = false;
  for (let field = reader.field(); field !== 0; field = reader.field()) {
    if (field === 1) place = reader.uint32();
    else if (field === 2) key = reader.text();
    else if (field === 3) id = reader.text();
    else if (field === 4) token = reader.text();
    else if (field === 5) wait = reader.bool();
    else reader.skip();
  }
  reader.leave(outer);
  const terms = allTerms[place];
  if (terms === undefined) throw new MalformedMessage("An operation refers to terms that do not precede it.");
  const { weight, limit, priority, ttlMs, owner, info, application } = terms;
  return { key, id, token, weight, limit, priority, ttlMs, wait, owner, info, application };
}

function readTerms(reader: Reader): Terms {
  const outer = reader.enter();
  const terms = { weight: 0, limit: 0, priority: 0, ttlMs: 0, owner: "", info: "", application: "" };
  for (let field = reader.field(); field !== 0; field = reader.field()) {
    if (field === 1) terms.weight = reader.integer();
    else if (field === 2) terms.limit = reader.integer();
    else if (field === 3) terms.priority = reader.uint32();
    else if (field === 4) terms.ttlMs = reader.uint32();
    else if (field === 5) terms.owner = reader.text();
    else if (field === 6) terms.info = reader.text();
    else if (field === 7) terms.application = reader.text();
    else reader.skip();
  }
  reader.leave(outer);
  terms.limit = readLimit(terms.limit);
  return terms;
}

function readRefs(reader: Reader): RenewRef[] {
  const outer = reader.enter();
  const refs: RenewRef[] = [];
  for (let field = reader.field(); field !== 0; field = reader.field()) {
    if (field === 1) refs.push(readRef(reader));
    else reader.skip();
  }
  reader.leave(outer);
  return refs;
}

function readRef(reader: Reader): RenewRef {
  const outer = reader.enter();
  let key = "";
  let id = "";
  let token = "";
  let ttlMs = 0;
  for (let field = reader.field(); field !== 0; field = reader.field()) {
    if (field === 1) key = reader.text();
    else if (field === 2) id = reader.text();
    else if (field === 3) token = reader.text();
    else if (field === 4) ttlMs = reader.uint32();
    else reader.skip();
  }
  reader.leave(outer);
  const ref = token === "" ? { key, id } : { key, id, token };
  return ttlMs === 0 ? ref : { ...ref, ttlMs };
}

function readQuery(bytes: Buffer): LookQuery {
  if (bytes.length > MAX_LOOK_BYTES)
    throw new MalformedMessage("The prefix or the cursor of a look is too long.");
  const { what, cursor, limit, maxClaims } = parse(LookOperationSchema, bytes);
  if (what.case === "key") return { key: what.value, maxClaims };
  if (what.case !== "prefix") throw new MalformedMessage("A look has neither a key nor a prefix.");
  const query = { prefix: what.value, limit, maxClaims };
  return cursor === "" ? query : { ...query, cursor };
}

function writeRef(writer: Writer, ref: ClaimRef): void {
  writer.text(1, ref.key);
  writer.text(2, ref.id);
  writer.text(3, ref.token ?? "");
}

function haveSameTerms(a: ClaimRequest, b: ClaimRequest): boolean {
  return (
    a.weight === b.weight &&
    a.limit === b.limit &&
    a.priority === b.priority &&
    a.ttlMs === b.ttlMs &&
    a.owner === b.owner &&
    a.info === b.info &&
    a.application === b.application
  );
}
