/**
 * Real etcd members for tests: one by itself, and a cluster of three whose members can be cut off from each other.
 * `ETCD_SERVER` names another `etcd` than the one that is found.
 */
import { randomUUID } from "node:crypto";
import { join } from "node:path";
import { Etcd3 } from "etcd3";
import { type Engine, freePort, startEngine, until } from "./engine.ts";
import { canRun, findProgram } from "./program.ts";
import { type NetworkProxy, type Piece, type ProxyConnection, silence, startProxy } from "./proxy.ts";

export interface EtcdMember extends Engine {
  /** For clients. */
  readonly url: string;
  /** The member's own status. It answers only after it was part of a majority since its start. */
  status(): Promise<EtcdStatus>;
}

export interface EtcdStatus {
  readonly id: string;
  /** The id of the leader that it knows, if it knows one. */
  readonly leader: string | undefined;
}

export interface EtcdCluster {
  readonly members: readonly EtcdMember[];
  /** The member that the others follow, once there is one. */
  leader(): Promise<EtcdMember>;
  /** Nothing gets through between this member and the others; clients reach all of them. */
  cutOff(member: EtcdMember): void;
  /** All members reach each other again. */
  heal(): void;
  stop(): Promise<void>;
}

export function startEtcd(settings: readonly string[] = []): Promise<EtcdMember> {
  return withFreePorts(() => startAlone(settings));
}

/** Three members, each of which the others reach through a proxy only. */
export function startEtcdCluster(settings: readonly string[] = []): Promise<EtcdCluster> {
  return withFreePorts(() => startThree(settings));
}

/**
 * Another member, which learns what the others know and has no vote. It is one from when the others have taken it in; then they
 * need it for nothing, so that it can be stopped at any time.
 */
export async function startEtcdLearner(member: EtcdMember): Promise<EtcdMember> {
  const peerPort = await freePort();
  const name = `holdfast-${randomUUID()}`;
  const client = new Etcd3({ hosts: member.url });
  try {
    const { members } = await client.cluster.memberAdd({ peerURLs: [urlOf(peerPort)], isLearner: true });
    // The new one is the last, and has no name before it starts.
    const peers = members.flatMap((each) => each.peerURLs.map((url) => `${each.name || name}=${url}`));
    return await startMember({
      ...{ name, peerPort, peers: peers.join(","), token: name, settings: [] },
      joins: true,
    });
  } finally {
    client.close();
  }
}

/** The ports for peers are settled before a member starts, and somebody else may take one first: then all are new. */
async function withFreePorts<T>(start: () => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await start();
    } catch (error) {
      if (attempt === 3) throw error;
    }
  }
}

async function startAlone(settings: readonly string[]): Promise<EtcdMember> {
  const peerPort = await freePort();
  const name = `holdfast-${randomUUID()}`;
  const peers = `${name}=${urlOf(peerPort)}`;
  const member = await startMember({ name, peerPort, peers, token: name, settings });
  try {
    await until("etcd has a leader", async () => (await member.status()).leader !== undefined);
    return member;
  } catch (error) {
    await member.stop();
    throw error;
  }
}

/** Whether tests against etcd can run here. */
export function canRunEtcd(): boolean {
  return canRun("etcd", etcdBinary);
}

async function startThree(settings: readonly string[]): Promise<EtcdCluster> {
  const token = `holdfast-${randomUUID()}`;
  const peerPorts = await Promise.all([freePort(), freePort(), freePort()]);
  const proxies = await Promise.all(peerPorts.map((port) => startProxy(port)));
  const names = peerPorts.map((_, index) => `${token}-${index}`);
  const peers = names.map((name, index) => `${name}=${urlOf(proxies[index]!.port)}`).join(",");
  const starting = await Promise.allSettled(
    peerPorts.map((peerPort, index) =>
      startMember({
        name: names[index]!,
        peerPort,
        advertised: proxies[index]!.port,
        peers,
        token,
        settings,
      }),
    ),
  );
  const members = starting.flatMap((each) => (each.status === "fulfilled" ? [each.value] : []));
  const cluster = new Cluster(members, proxies);
  try {
    const failure = starting.find((each) => each.status === "rejected");
    if (failure !== undefined) throw failure.reason;
    await cluster.learnIds();
    return cluster;
  } catch (error) {
    await cluster.stop();
    throw error;
  }
}

class Cluster implements EtcdCluster {
  readonly members: readonly EtcdMember[];
  readonly #proxies: readonly NetworkProxy[];
  readonly #ids = new Map<EtcdMember, string>();

  constructor(members: readonly EtcdMember[], proxies: readonly NetworkProxy[]) {
    this.members = members;
    this.#proxies = proxies;
  }

  async learnIds(): Promise<void> {
    for (const member of this.members) {
      await until("all members follow a leader", async () => {
        const { id, leader } = await member.status();
        this.#ids.set(member, id);
        return leader !== undefined;
      });
    }
  }

  async leader(): Promise<EtcdMember> {
    let found: EtcdMember | undefined;
    await until("a majority follows a leader", async () => {
      const answers = await Promise.all(
        this.members.map((member) => member.status().catch(() => ({ id: undefined, leader: undefined }))),
      );
      // Followers name a leader that has just been killed until they miss it, so it has to answer itself.
      found = this.members.find((_, index) => {
        const { id } = answers[index]!;
        const followers = answers.filter(({ leader }) => leader !== undefined && leader === id);
        return followers.length * 2 > this.members.length;
      });
      return found !== undefined;
    });
    return found!;
  }

  /**
   * Messages travel both ways on both kinds of connection: a member sends on those that others opened to it, and posts
   * on its own when there are none. So it takes more than silence at its own door: at the doors of the others, what
   * comes from it is held as well. Each request says whom it is from.
   */
  cutOff(member: EtcdMember): void {
    const id = this.#ids.get(member);
    if (id === undefined) throw new Error("That is no member of this cluster.");
    this.members.forEach((each, index) => {
      this.#proxies[index]!.decide(each === member ? silence : holdFrom(id));
      // Connections that are open already do not say again whom they are from. Members open new ones at once.
      this.#proxies[index]!.cut();
    });
  }

  heal(): void {
    for (const proxy of this.#proxies) proxy.heal();
  }

  async stop(): Promise<void> {
    await Promise.all(this.members.map((member) => member.stop()));
    await Promise.all(this.#proxies.map((proxy) => proxy.stop()));
  }
}

/** Holds what travels on connections that this member opened. */
function holdFrom(id: string): (piece: Piece) => "hold" | "pass" {
  const from = `x-server-from: ${BigInt(id).toString(16)}\r\n`;
  const itsOwn = new Set<ProxyConnection>();
  return ({ direction, bytes, connection }) => {
    if (direction === "request" && bytes.toString("latin1").toLowerCase().includes(from))
      itsOwn.add(connection);
    return itsOwn.has(connection) ? "hold" : "pass";
  };
}

interface MemberOptions {
  readonly name: string;
  readonly peerPort: number;
  /** The port under which the other members know it, if not its own. */
  readonly advertised?: number;
  /** All members, as `--initial-cluster` takes them. */
  readonly peers: string;
  readonly token: string;
  /** More flags of etcd. */
  readonly settings: readonly string[];
  /** Whether the others are there already, and know of it. */
  readonly joins?: boolean;
}

async function startMember(options: MemberOptions): Promise<EtcdMember> {
  const { name, peerPort, advertised = peerPort, peers, token, settings, joins = false } = options;
  const state = joins ? "existing" : "new";
  const engine = await startEngine({
    name: "etcd",
    program: etcdBinary(),
    args: (folder, port) => [
      ...["--name", name, "--data-dir", join(folder, "data"), "--logger", "zap"],
      ...["--listen-client-urls", urlOf(port), "--advertise-client-urls", urlOf(port)],
      ...["--listen-peer-urls", urlOf(peerPort), "--initial-advertise-peer-urls", urlOf(advertised)],
      ...["--initial-cluster", peers, "--initial-cluster-token", token, "--initial-cluster-state", state],
      ...settings,
    ],
    async isReady() {
      // Clients are served once there is a majority, which may take more members than this one. Peers are served at
      // once, and the names in their list are made up for this cluster.
      const answer = await fetch(`${urlOf(peerPort)}/members`, { signal: AbortSignal.timeout(1_000) });
      return (await answer.text()).includes(urlOf(advertised));
    },
  });
  const url = urlOf(engine.port);
  return Object.assign(engine, { url, status: () => statusOf(url) });
}

async function statusOf(url: string): Promise<EtcdStatus> {
  const request = { method: "POST", body: "{}", signal: AbortSignal.timeout(1_000) };
  const answer = await fetch(`${url}/v3/maintenance/status`, request);
  if (!answer.ok) throw new Error(`etcd answered with status ${answer.status}.`);
  const { header, leader } = (await answer.json()) as { header: { member_id: string }; leader?: string };
  return { id: header.member_id, leader: leader === "0" ? undefined : leader };
}

function etcdBinary(): string {
  const named = process.env["ETCD_SERVER"];
  if (named !== undefined) return findProgram({ name: named });
  return findProgram({ name: "etcd", packages: ["etcd-server"] });
}

function urlOf(port: number): string {
  return `http://127.0.0.1:${port}`;
}
