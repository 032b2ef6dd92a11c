/** A client whose watches can be listened in on. */
import type { Etcd3 } from "etcd3";
import type { EtcdClient, EtcdWatchResponse } from "../../../src/stores/etcd/client.ts";
import type { WatchStream } from "../../../src/stores/etcd/wake.ts";

/** A stream of the client is more than the store asks of one. */
export type HeardStream = WatchStream & { pause(): void; resume(): void };

export interface HeardClient {
  readonly client: EtcdClient;
  /** All that it has opened. */
  readonly streams: readonly HeardStream[];
  /** All that etcd has said over them. */
  readonly told: readonly EtcdWatchResponse[];
}

export function heardClient(etcd: Etcd3): HeardClient {
  const streams: HeardStream[] = [];
  const told: EtcdWatchResponse[] = [];
  const { kv, leaseClient, maintenance, watchClient } = etcd as unknown as EtcdClient;
  const watch = async () => {
    const stream = (await watchClient.watch()) as HeardStream;
    stream.on("data", (response) => told.push(response));
    streams.push(stream);
    return stream;
  };
  return { client: { kv, leaseClient, maintenance, watchClient: { watch } }, streams, told };
}
