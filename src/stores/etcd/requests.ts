/** The requests that the store makes, one function for each kind of comparison and operation. */
import type { EtcdCompare, EtcdRequestOp, EtcdTxnRequest } from "./client.ts";

/** The key has this revision; undefined: there is no such key. */
export function hasRevision(key: Buffer, revision: string | undefined): EtcdCompare {
  return revision === undefined
    ? { key, target: "Create", result: "Equal", create_revision: "0" }
    : { key, target: "Mod", result: "Equal", mod_revision: revision };
}

export function exists(key: Buffer): EtcdCompare {
  return { key, target: "Create", result: "Greater", create_revision: "0" };
}

export function isAbsent(key: Buffer): EtcdCompare {
  return hasRevision(key, undefined);
}

/** The key has not been written since this revision. It may be absent. */
export function isNotWrittenSince(key: Buffer, revision: bigint): EtcdCompare {
  return { key, target: "Mod", result: "Less", mod_revision: String(revision + 1n) };
}

export function put(key: Buffer, value: string, lease?: string): EtcdRequestOp {
  const request = { key, value: Buffer.from(value) };
  return { request_put: lease === undefined ? request : { ...request, lease } };
}

export function remove(key: Buffer): EtcdRequestOp {
  return { request_delete_range: { key } };
}

export function get(key: Buffer): EtcdRequestOp {
  return { request_range: { key } };
}

export function getKey(key: Buffer): EtcdRequestOp {
  return { request_range: { key, keys_only: true } };
}

/**
 * The key if it was written after this revision. The answer counts it also where it was not, so that an unchanged key can be
 * told from one that is absent.
 */
export function getIfWrittenAfter(key: Buffer, revision: string): EtcdRequestOp {
  return { request_range: { key, min_mod_revision: String(BigInt(revision) + 1n) } };
}

export function nested(request: EtcdTxnRequest): EtcdRequestOp {
  return { request_txn: request };
}
