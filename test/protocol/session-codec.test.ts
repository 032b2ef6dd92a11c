/** The session's messages are written by hand. The library that reads the .proto files must understand every one of them. */
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import fc from "fast-check";
import { type ClaimRequest, HoldfastError, type RenewAnswer, UNLIMITED } from "holdfast";
import { describe, expect, test } from "vitest";
import {
  AnswerWriter,
  claims,
  FrameSplitter,
  MalformedMessage,
  RequestWriter,
  readAnswers,
  readRequest,
  session,
} from "../../src/protocol/index.ts";

const RUNS = { numRuns: 300 };

const text = fc
  .oneof(
    fc.string({ maxLength: 20 }),
    fc.string({ unit: "binary", maxLength: 80 }),
    fc.constant("ä".repeat(200)),
  )
  // Lone surrogates are no text.
  .map((value) => Buffer.from(value).toString());
const number = fc.integer({ min: 1, max: 0xffff_ffff });
const ms = fc.integer({ min: 0, max: 86_400_000 });
const fence = fc.oneof(fc.bigInt({ min: 1n, max: 2n ** 64n - 1n }), fc.bigInt({ min: 1n, max: 2n ** 53n }));

const request: fc.Arbitrary<ClaimRequest> = fc.record({
  key: text,
  id: text,
  token: text,
  weight: fc.integer({ min: 1, max: 1_000_000_000 }),
  limit: fc.oneof(fc.integer({ min: 1, max: 1_000_000_000 }), fc.constant(UNLIMITED)),
  priority: fc.integer({ min: 0, max: 65_535 }),
  ttlMs: ms,
  wait: fc.boolean(),
  owner: fc.constantFrom("a", "b"),
  info: fc.constantFrom("", "why"),
  application: text,
});

const renewAnswer: fc.Arbitrary<RenewAnswer> = fc.oneof(
  fc.record({
    state: fc.constant("held" as const),
    fence,
    acquiredAtMs: fc.integer({ min: 0, max: 2 ** 50 }),
    expiresInMs: ms,
  }),
  fc.record({ state: fc.constant("waiting" as const), expiresInMs: ms, retryInMs: ms, fence }),
  fc.constant({ state: "gone" as const }),
  fc.record({ state: fc.constant("gone" as const), takenOverBy: text }),
);

/** The message in its frame. */
function unframed(frame: Buffer): Buffer {
  const [message] = new FrameSplitter(1e9).push(frame);
  return message!;
}

describe("requests", () => {
  test("what is written is read as it was, by us and by the library", () => {
    fc.assert(
      fc.property(fc.array(request, { maxLength: 30 }), text, (requests, owner) => {
        const writer = new RequestWriter();
        writer.hello(1, "test");
        writer.listen(owner);
        requests.forEach((each, index) => {
          writer.acquire(index + 1, each);
        });
        writer.renew(1_000, [
          { key: "k", id: "i" },
          { key: "k", id: "i", token: "t", ttlMs: 5 },
        ]);
        writer.release(1_001, [{ key: "k", id: "i", token: "t" }]);
        writer.look(1_002, { prefix: "p", limit: 3, maxClaims: 4 });
        const bytes = unframed(writer.take());
        const ours = readRequest(bytes, 10_000);
        expect(ours.hello?.version).toBe(1);
        expect(ours.listen).toEqual([owner]);
        expect(ours.operations.slice(0, requests.length)).toEqual(
          requests.map((each, index) => ({
            number: index + 1,
            verb: "acquire",
            request: expect.objectContaining(each),
            refs: undefined,
            query: undefined,
          })),
        );
        const theirs = fromBinary(session.OpenRequestSchema, bytes);
        expect(theirs.operations).toHaveLength(requests.length + 3);
        // Written again by the library, it says the same.
        const rewritten = readRequest(Buffer.from(toBinary(session.OpenRequestSchema, theirs)), 10_000);
        expect(rewritten).toEqual(ours);
        for (const [index, { verb }] of theirs.operations.slice(0, requests.length).entries()) {
          const { terms, ...named } = verb.value as session.AcquireOperation;
          const { weight, limit, priority, ttlMs, owner, info, application } = theirs.terms[terms]!;
          const { $typeName: _, ...names } = named;
          const most = Number(limit) === 0 ? UNLIMITED : Number(limit);
          const read = {
            ...names,
            weight: Number(weight),
            limit: most,
            priority,
            ttlMs,
            owner,
            info,
            application,
          };
          expect(read).toEqual(requests[index]);
        }
      }),
      RUNS,
    );
  });

  test("more operations than allowed are refused before they are all read", () => {
    const writer = new RequestWriter();
    for (let n = 1; n <= 11; n++) writer.release(n, [{ key: "k", id: "i", token: "t" }]);
    const bytes = unframed(writer.take());
    expect(() => readRequest(bytes, 10)).toThrow(MalformedMessage);
    expect(readRequest(bytes, 11).operations).toHaveLength(11);
  });

  test("fields of a later version are passed over", () => {
    const writer = new RequestWriter();
    writer.release(7, [{ key: "k", id: "i", token: "t" }]);
    const unknown = Buffer.from([
      0x78, 0xff, 0x01, 0x7a, 0x02, 0x61, 0x62, 0x7d, 1, 2, 3, 4, 0x79, 1, 2, 3, 4, 5, 6, 7, 8,
    ]);
    const read = readRequest(Buffer.concat([unknown, unframed(writer.take()), unknown]), 10);
    expect(read.operations).toMatchObject([{ number: 7, verb: "release" }]);
  });

  test("whatever bytes arrive, they are read or refused as malformed", () => {
    let read = 0;
    const attempt = (bytes: Uint8Array) => {
      try {
        readRequest(Buffer.from(bytes), 100);
        read++;
      } catch (error) {
        expect(error).toBeInstanceOf(Error);
        expect(error).not.toBeInstanceOf(RangeError);
        expect(error).not.toBeInstanceOf(TypeError);
      }
    };
    fc.assert(fc.property(fc.uint8Array({ maxLength: 60 }), attempt), { numRuns: 3_000 });
    const writer = new RequestWriter();
    writer.acquire(1, { ...fc.sample(request, 1)[0]!, key: "some key" });
    const whole = unframed(writer.take());
    for (let length = 0; length < whole.length; length++) attempt(whole.subarray(0, length));
    for (let at = 0; at < whole.length; at++) {
      for (let bit = 0; bit < 8; bit++) {
        const flipped = Buffer.from(whole);
        flipped[at]! ^= 1 << bit;
        attempt(flipped);
      }
    }
    expect(read).toBeGreaterThan(0);
  });

  test("a text that is not UTF-8 is refused, so that two keys never become one", () => {
    const bytes = toBinary(session.OpenRequestSchema, create(session.OpenRequestSchema, { listen: ["ab"] }));
    bytes[bytes.length - 1] = 0xff;
    expect(() => readRequest(Buffer.from(bytes), 10)).toThrow(MalformedMessage);
    const replacement = toBinary(
      session.OpenRequestSchema,
      create(session.OpenRequestSchema, { listen: ["\ufffd"] }),
    );
    expect(readRequest(Buffer.from(replacement), 10).listen).toEqual(["\ufffd"]);
  });
});

describe("answers", () => {
  test("what is written is read as it was, by us and by the library", () => {
    fc.assert(
      fc.property(
        fc.array(renewAnswer, { maxLength: 20 }),
        fc.array(fc.boolean(), { maxLength: 200 }),
        number,
        fence,
        text,
        (answers, released, first, granted, owner) => {
          const writer = new AnswerWriter();
          writer.renewed(first, answers);
          writer.released(1, released);
          writer.acquired(2, { state: "refused", reason: "queue-full" });
          writer.failed(3, new HoldfastError("QUEUE_FULL", "full", { key: "k" }));
          writer.granted(owner, { key: "k", id: "i", fence: granted });
          const bytes = unframed(writer.take());
          const heard: unknown[] = [];
          const hear =
            (what: string) =>
            (...said: unknown[]) =>
              void heard.push([what, ...said]);
          readAnswers(bytes, {
            welcome: hear("welcome"),
            goodbye: hear("goodbye"),
            acquired: hear("acquired"),
            renewed: hear("renewed"),
            released: hear("released"),
            looked: hear("looked"),
            failed: hear("failed"),
            granted: hear("granted"),
          });
          expect(heard).toEqual([
            ["renewed", first, answers],
            ["released", 1, released],
            ["acquired", 2, { state: "refused", reason: "queue-full" }],
            ["failed", 3, expect.objectContaining({ code: "QUEUE_FULL", key: "k" })],
            ["granted", owner, { key: "k", id: "i", fence: granted }],
          ]);
          const theirs = fromBinary(session.OpenResponseSchema, bytes);
          expect(theirs.answers.map((answer) => answer.number)).toEqual([first, 1, 2, 3]);
          const renewed = theirs.answers[0]!.result.value as session.RenewAnswer;
          expect(renewed.claims.map((claim) => claim.fence)).toEqual(
            answers.map((answer) => ("fence" in answer ? answer.fence : 0n)),
          );
          expect((theirs.answers[1]!.result.value as session.ReleaseAnswer).released).toEqual(released);
          expect(theirs.answers[3]!.result.value).toMatchObject({
            code: claims.ErrorCode.QUEUE_FULL,
            key: "k",
          });
          expect(theirs.granted[0]!.fence).toBe(granted);
          // And what the library writes, we read.
          const again: unknown[] = [];
          readAnswers(Buffer.from(toBinary(session.OpenResponseSchema, theirs)), {
            welcome: () => {},
            goodbye: () => {},
            acquired: () => {},
            renewed: (_, each) => again.push(each),
            released: (_, each) => again.push(each),
            looked: () => {},
            failed: () => {},
            granted: (_, each) => again.push(each.fence),
          });
          expect(again).toEqual([answers, released, granted]);
        },
      ),
      RUNS,
    );
  });

  test("a cause stays on the server", () => {
    const writer = new AnswerWriter();
    writer.failed(1, new Error("connect ECONNREFUSED db.internal:5432"));
    expect(unframed(writer.take()).toString("latin1")).not.toContain("internal");
  });
});

describe("frames", () => {
  test("messages come out whole, however they were cut", () => {
    fc.assert(
      fc.property(
        fc.array(fc.uint8Array({ maxLength: 50 }), { maxLength: 8 }),
        fc.integer({ min: 1, max: 20 }),
        (messages, cut) => {
          const stream = Buffer.concat(
            messages.map((message) => {
              const head = Buffer.alloc(5);
              head.writeUInt32BE(message.length, 1);
              return Buffer.concat([head, message]);
            }),
          );
          const splitter = new FrameSplitter(50);
          const out: Buffer[] = [];
          for (let at = 0; at < stream.length; at += cut)
            out.push(...splitter.push(stream.subarray(at, at + cut)));
          expect(out.map((each) => [...each])).toEqual(messages.map((each) => [...each]));
          expect(splitter.keptBytes).toBe(0);
        },
      ),
      RUNS,
    );
  });

  test("a message that says it is too long is refused before it has come", () => {
    const head = Buffer.from([0, 0xff, 0xff, 0xff, 0xff]);
    expect(() => new FrameSplitter(1_000).push(head)).toThrow(MalformedMessage);
  });
});
