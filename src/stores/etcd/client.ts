/** What the store needs of an `Etcd3` client of the etcd3 package, and of etcd's answers. */
import { invalid } from "../../store/index.ts";

/** Settings of one call. */
export interface EtcdCallOptions {
  /** Milliseconds since 1970. */
  readonly deadline?: number;
}

export interface EtcdHeader {
  readonly revision: string;
  readonly raft_term: string;
}

export interface EtcdKeyValue {
  readonly key: Buffer;
  readonly value: Buffer;
  readonly mod_revision: string;
}

export interface EtcdRangeRequest {
  key?: Buffer;
  range_end?: Buffer;
  limit?: string | number;
  keys_only?: boolean;
  min_mod_revision?: string | number;
}

export interface EtcdRangeResponse {
  readonly header: EtcdHeader;
  readonly kvs: readonly EtcdKeyValue[];
  readonly count: string;
}

export interface EtcdCompare {
  result?: "Equal" | "Greater" | "Less" | "NotEqual";
  target?: "Version" | "Create" | "Mod" | "Value" | "Lease";
  key?: Buffer;
  create_revision?: string | number;
  mod_revision?: string | number;
}

export interface EtcdRequestOp {
  request_range?: EtcdRangeRequest;
  request_put?: { key?: Buffer; value?: Buffer; lease?: string | number };
  request_delete_range?: { key?: Buffer };
  request_txn?: EtcdTxnRequest;
}

export interface EtcdTxnRequest {
  compare?: EtcdCompare[];
  success?: EtcdRequestOp[];
  failure?: EtcdRequestOp[];
}

export interface EtcdResponseOp {
  readonly response_range: EtcdRangeResponse;
  readonly response_txn: EtcdTxnResponse;
}

export interface EtcdTxnResponse {
  readonly header: EtcdHeader;
  readonly succeeded: boolean;
  readonly responses: readonly EtcdResponseOp[];
}

export interface EtcdWatchRequest {
  create_request?: {
    key?: Buffer;
    range_end?: Buffer;
    filters?: ("Noput" | "Nodelete")[];
    watch_id?: string | number;
  };
  cancel_request?: { watch_id?: string | number };
}

export interface EtcdWatchResponse {
  readonly header: EtcdHeader;
  readonly watch_id: string;
  readonly created: boolean;
  readonly canceled: boolean;
  readonly events: readonly { readonly kv: EtcdKeyValue }[];
}

/** A stream in both directions. */
export interface EtcdStream<Asked, Told> {
  on(event: "data", listener: (told: Told) => void): this;
  on(event: "end", listener: () => void): this;
  on(event: "error", listener: (error: Error) => void): this;
  write(asked: Asked): void;
  end(): void;
  cancel(): void;
}

export interface EtcdKeepAlive {
  readonly header: EtcdHeader;
  readonly ID: string;
  readonly TTL: string;
}

/** What a member says of itself. */
export interface EtcdStatus {
  readonly version: string;
  /** Whether it has no vote, and serves nobody yet. */
  readonly isLearner?: boolean;
}

/** The methods of an `Etcd3` client that the store uses. */
export interface EtcdClient {
  readonly kv: {
    range(request: EtcdRangeRequest, options?: EtcdCallOptions): Promise<EtcdRangeResponse>;
    txn(request: EtcdTxnRequest, options?: EtcdCallOptions): Promise<EtcdTxnResponse>;
  };
  readonly leaseClient: {
    leaseGrant(
      request: { TTL?: string | number; ID?: string | number },
      options?: EtcdCallOptions,
    ): Promise<{ readonly ID: string; readonly TTL: string }>;
    leaseRevoke(request: { ID?: string | number }, options?: EtcdCallOptions): Promise<unknown>;
    leaseTimeToLive(
      request: { ID?: string | number },
      options?: EtcdCallOptions,
    ): Promise<{ readonly TTL: string; readonly grantedTTL: string }>;
    leaseKeepAlive(options?: EtcdCallOptions): Promise<EtcdStream<{ ID?: string | number }, EtcdKeepAlive>>;
  };
  readonly watchClient: {
    watch(options?: EtcdCallOptions): Promise<EtcdStream<EtcdWatchRequest, EtcdWatchResponse>>;
  };
  readonly maintenance: {
    status(options?: EtcdCallOptions): Promise<EtcdStatus>;
  };
}

const methods = {
  kv: ["range", "txn"],
  leaseClient: ["leaseGrant", "leaseRevoke", "leaseTimeToLive", "leaseKeepAlive"],
  watchClient: ["watch"],
  maintenance: ["status"],
} as const;

/** Refuses what is no such client, before anything is asked of it. */
export function checkClient(client: unknown): asserts client is EtcdClient {
  for (const [part, names] of Object.entries(methods)) {
    const found = Object((Object(client) as Record<string, unknown>)[part]) as Record<string, unknown>;
    const missing = names.find((name) => typeof found[name] !== "function");
    if (missing === undefined) continue;
    const isNamespace = part === "maintenance";
    throw invalid(
      isNamespace
        ? "client must be the Etcd3 client itself, not a namespace of it. Pass the client, and the prefix as an option."
        : `client must be an Etcd3 client of the etcd3 package, version 1: it has no ${part}.${missing}.`,
    );
  }
}
