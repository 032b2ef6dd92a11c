export { create } from "@bufbuild/protobuf";
export { errorOf, type FailureFields, failureOf } from "./errors.ts";
export * as health from "./gen/grpc/health/v1/health_pb.ts";
export * as claims from "./gen/holdfast/v1/claims_pb.ts";
export * as locks from "./gen/holdfast/v1/locks_pb.ts";
export * as session from "./gen/holdfast/v1/session_pb.ts";
export { GrowingBuffer } from "./growing-buffer.ts";
export { FrameSplitter } from "./grpc-frames.ts";
export { checkJson } from "./json-check.ts";
export { MessageQueue } from "./message-queue.ts";
export { type AnswerListener, AnswerWriter, readAnswers } from "./session-answers.ts";
export { type Operation, type RequestMessage, RequestWriter, readRequest } from "./session-requests.ts";
export { readDurability, readKey, wireDurabilities, wireKey, wireMs } from "./statuses.ts";
export { MalformedMessage } from "./wire-reader.ts";

/** The version of the session protocol. */
export const SESSION_VERSION = 1;

/** The path of a session. */
export const SESSION_PATH = "/holdfast.v1.Session/Open";
