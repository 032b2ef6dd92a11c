import { type DescMessage, fromBinary, type MessageShape } from "@bufbuild/protobuf";
import { MalformedMessage } from "./wire.ts";

/** Reads a message that is rare enough for the general way. Whatever is wrong with it, it is malformed. */
export function parse<D extends DescMessage>(schema: D, bytes: Uint8Array): MessageShape<D> {
  try {
    return fromBinary(schema, bytes);
  } catch (cause) {
    throw new MalformedMessage("A part of a message cannot be read.", { cause });
  }
}
