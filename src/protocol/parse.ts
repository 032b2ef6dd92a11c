import { type DescMessage, fromBinary, type MessageShape } from "@bufbuild/protobuf";
import { MalformedMessage } from "./wire-reader.ts";

/** Reads a rare message with the library. Every error is a MalformedMessage. */
export function parse<D extends DescMessage>(schema: D, bytes: Uint8Array): MessageShape<D> {
  try {
    return fromBinary(schema, bytes);
  } catch (cause) {
    throw new MalformedMessage("A part of a message cannot be read.", { cause });
  }
}
