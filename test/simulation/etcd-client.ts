/** A client of the simulated etcd: every call crosses the network and may never be answered, and streams break. */
import type {
  EtcdClient,
  EtcdKeepAlive,
  EtcdStream,
  EtcdWatchRequest,
  EtcdWatchResponse,
} from "../../src/stores/etcd/client.ts";
import { type EtcdCluster, nameOf, type WatchEvent } from "./etcd-cluster.ts";
import type { Machine, World } from "./world.ts";

export class GRPCUnavailableError extends Error {}

/** How long it takes at the most until the reader of a stream notices that it broke. */
const MAX_UNNOTICED_MS = 3_000;
/** A third of the shortest life is how long the store waits for the answer to a sign of life. */
const MAX_LATE_MS = 320;
const LATE = 0.3;

/** How a message gets from one machine to another. Whether it is on its way. */
export type Carry = (from: Machine, to: Machine, what: () => string, arrive: () => void) => boolean;

class Stream<Asked, Told> implements EtcdStream<Asked, Told> {
  readonly #onWrite: (asked: Asked) => void;
  readonly #onEnd: () => void;
  readonly #data: ((told: Told) => void)[] = [];
  readonly #errors: ((error: Error) => void)[] = [];
  isOver = false;

  constructor(onWrite: (asked: Asked) => void, onEnd: () => void = () => {}) {
    this.#onWrite = onWrite;
    this.#onEnd = onEnd;
  }

  on(event: "data" | "end" | "error", listener: (told: never) => void): this {
    if (event === "data") this.#data.push(listener as (told: Told) => void);
    if (event === "error") this.#errors.push(listener as (error: Error) => void);
    return this;
  }

  write(asked: Asked): void {
    if (!this.isOver) this.#onWrite(asked);
  }

  tell(told: Told): void {
    if (!this.isOver) for (const listener of this.#data) listener(told);
  }

  fail(): void {
    if (this.isOver) return;
    this.end();
    for (const listener of this.#errors) listener(new GRPCUnavailableError("The stream broke."));
  }

  end(): void {
    this.isOver = true;
    this.#onEnd();
  }

  cancel(): void {}
}

interface Watch {
  readonly id: string;
  readonly from: string;
  readonly to: string;
  readonly type: WatchEvent["type"];
}

export interface SimulatedEtcd {
  readonly world: World;
  readonly server: Machine;
  readonly cluster: EtcdCluster;
  /** What breaks the streams of all clients. */
  readonly breaks: Set<() => void>;
}

/** The client of a process. Whoever is in the server itself carries everything at once. */
export function etcdClient(etcd: SimulatedEtcd, process: Machine, carry: Carry): EtcdClient {
  const { world, server, cluster, breaks } = etcd;

  /** An answer that is undefined is never given. */
  function call<T extends object>(what: string, serve: () => T | undefined): Promise<T> {
    return new Promise((resolve, reject) => {
      carry(
        process,
        server,
        () => what,
        () => {
          let answered: () => void;
          let told = "";
          try {
            const answer = serve();
            if (answer === undefined) return;
            told = said(answer);
            answered = () => resolve(answer);
          } catch (error) {
            told = (error as Error).constructor.name;
            answered = () => reject(error);
          }
          carry(server, process, () => `${what} = ${told}`, answered);
        },
      );
      if (process !== server && world.random.chance(world.weather.reset)) {
        const broken = () => reject(new GRPCUnavailableError("The connection broke."));
        world.in(world.random.between(1, 50), () => process.do(broken));
      }
    });
  }

  /** A sign of life whose answer comes late, and yet in time to count, is what a process may be wrong about. */
  function late(tell: () => void): void {
    const { random, weather } = world;
    if (weather.straggle === 0 || !random.chance(LATE)) {
      tell();
      return;
    }
    cluster.met.lateAnswers++;
    world.in(random.between(0, MAX_LATE_MS), () => process.do(tell));
  }

  function keepAlive() {
    const stream: Stream<{ ID?: string | number }, EtcdKeepAlive> = new Stream(({ ID = "" }) => {
      call("keep-alive", () => cluster.keepAlive(process, String(ID))).then(
        (told) => late(() => stream.tell(told)),
        () => stream.fail(),
      );
    });
    return stream;
  }

  function watch() {
    const watches = new Map<string, Watch>();
    const onEvents = (events: readonly WatchEvent[]) => {
      for (const { id, from, to, type } of watches.values()) {
        const told = events.filter(
          ({ type: each, kv }) => each === type && nameOf(kv.key) >= from && nameOf(kv.key) < to,
        );
        if (told.length > 0) tell({ ...nothing, header: cluster.header, watch_id: id, events: told });
      }
    };
    const fail = () =>
      world.in(world.random.between(1, MAX_UNNOTICED_MS), () => process.do(() => stream.fail()));
    const tell = (response: EtcdWatchResponse) => {
      const what = () => `watch ${response.watch_id} ${response.created ? "created" : "event"}`;
      // A message that is lost breaks the stream, which its reader notices after a while.
      if (!carry(server, process, what, () => stream.tell(response))) fail();
    };
    const stream: Stream<EtcdWatchRequest, EtcdWatchResponse> = new Stream(
      ({ create_request: create, cancel_request: cancel }) => {
        const sent = carry(
          process,
          server,
          () => (create === undefined ? "unwatch" : "watch"),
          () => {
            if (cancel !== undefined) watches.delete(String(cancel.watch_id));
            if (create === undefined) return;
            const id = String(create.watch_id);
            const type = create.filters?.includes("Noput") ? "removed" : "written";
            watches.set(id, { id, from: nameOf(create.key), to: nameOf(create.range_end), type });
            tell({ ...nothing, header: cluster.header, watch_id: id, created: true });
          },
        );
        if (!sent) fail();
      },
      () => {
        cluster.watchers.delete(onEvents);
        breaks.delete(fail);
      },
    );
    cluster.watchers.add(onEvents);
    breaks.add(fail);
    return stream;
  }

  return {
    kv: {
      range: (request) => call("range", () => cluster.range(request)),
      txn: (request) => call(`txn${world.tracing ? ` ${toldOf(request)}` : ""}`, () => cluster.txn(request)),
    },
    leaseClient: {
      leaseGrant: ({ TTL, ID }) =>
        call("grant", () => cluster.grant(process, Number(TTL), ID === undefined ? undefined : String(ID))),
      leaseRevoke: ({ ID }) => call("revoke", () => [cluster.revoke(String(ID))]),
      leaseTimeToLive: ({ ID }) => call("time to live", () => cluster.timeToLive(String(ID))),
      leaseKeepAlive: async () => keepAlive(),
    },
    watchClient: { watch: async () => watch() },
    maintenance: { status: () => call("status", () => ({ version: "3.5.0" })) },
  };
}

const nothing = { created: false, canceled: false, events: [] };

/** Buffers as text, for a person. */
function toldOf(request: unknown): string {
  return JSON.stringify(request, (_, value) =>
    value?.type === "Buffer" ? Buffer.from(value.data).toString("utf8") : value,
  );
}

function said(answer: object): string {
  if ("succeeded" in answer) return answer.succeeded ? "succeeded" : "refused";
  return "TTL" in answer ? `TTL ${answer.TTL}` : "…";
}
