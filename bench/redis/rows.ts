/** What the measurements of the Redis suite come to, against what was aimed at. */
import type { Speed } from "../cycles.ts";
import { perSecond, type Row, type Target, whole } from "../report.ts";
import { ratioOf, type Spread, spreadOf } from "../statistics.ts";
import type { ContenderName } from "./contenders.ts";
import { type Costs, type CrowdKind, type CrowdSizes, verbs } from "./crowd.ts";
import type { Contest, HotKeySizes } from "./hot-key.ts";
import type { RenewalsSizes, WaitersSizes } from "./server-load.ts";
import type { Speeds } from "./throughput.ts";

/** Speeds: above 1 is faster than the other. */
export function speedRow(
  what: string,
  speeds: Speeds,
  ours: ContenderName,
  theirs: ContenderName,
  target?: Target,
): Row {
  const [mine, other] = [cyclesOf(speeds, ours), cyclesOf(speeds, theirs)];
  return {
    what,
    figure: perSecond(spreadOf(mine).median),
    peer: `${theirs}: ${perSecond(spreadOf(other).median)}`,
    result: ratioOf(other, mine),
    target,
  };
}

/** The peer with the most cycles a second. */
export function fastest(speeds: Speeds, names: readonly ContenderName[]): ContenderName {
  const median = (name: ContenderName) => spreadOf(cyclesOf(speeds, name)).median;
  return names.toSorted((a, b) => median(a) - median(b))[0]!;
}

/** Latencies: below 1 is quicker than the quickest peer. */
export function latencyRow(what: string, speeds: Speeds, names: readonly ContenderName[]): Row {
  const p99 = (name: ContenderName) => speedsOf(speeds, name).map(({ p99Ms }) => p99Ms);
  const median = (name: ContenderName) => spreadOf(p99(name)).median;
  const best = names.toSorted((a, b) => median(a) - median(b))[0]!;
  return {
    what,
    figure: `${median("Holdfast").toFixed(1)} ms`,
    peer: `${best}: ${median(best).toFixed(1)} ms`,
    result: ratioOf(p99("Holdfast"), p99(best)),
    target: { atMost: 1 },
  };
}

function cyclesOf(speeds: Speeds, name: ContenderName): number[] {
  return speedsOf(speeds, name).map(({ cycleNs }) => cycleNs);
}

function speedsOf(speeds: Speeds, name: ContenderName): readonly Speed[] {
  return speeds.get(name) ?? [];
}

export function hotKeyRows(
  sizes: HotKeySizes,
  contests: ReadonlyMap<ContenderName, readonly Contest[]>,
): Row[] {
  const { processes, workers, holdMs } = sizes;
  const what = `one key, ${processes} processes × ${workers} waiters, held ${holdMs} ms`;
  const row = (aspect: string, measure: Measure, target: Target): Row => {
    const [ours, ...peers] = [...contests].map(([name, rounds]) => ({
      name,
      ...measure.show(spreadOf(rounds.map(measure.of))),
    }));
    return {
      what: `${what}: ${aspect}`,
      figure: ours!.text,
      peer: peers.map(({ name, text }) => `${name}: ${text}`).join(", "),
      result: ours!.spread,
      target,
    };
  };
  return [
    row("workers served", servedFraction(processes * workers), { atLeast: 1 }),
    row(
      "most by least served",
      measure(mostByLeast, (value) => value.toFixed(2)),
      { atMost: 1.2 },
    ),
    row("longest wait, by a fair queue's", longestByFair, { atMost: 2 }),
    row(
      "commands per handoff",
      measure(
        ({ commandsPerHandoff }) => commandsPerHandoff,
        (value) => value.toFixed(2),
      ),
      {
        atMost: 3,
      },
    ),
  ];
}

interface Measure {
  of(contest: Contest): number;
  show(spread: Spread): { readonly text: string; readonly spread: Spread };
}

function measure(of: (contest: Contest) => number, text: (value: number) => string): Measure {
  return { of, show: (spread) => ({ text: text(spread.median), spread }) };
}

function servedFraction(all: number): Measure {
  return measure(
    ({ served }) => served.filter((times) => times > 0).length / all,
    (value) => `${whole(value * all)} of ${all}`,
  );
}

function mostByLeast({ served }: Contest): number {
  // Somebody who was never served makes a ratio that says nothing; once is the least that can be divided by.
  return Math.max(...served) / Math.max(1, Math.min(...served));
}

const longestByFair = measure(
  ({ waitsMs, fairWaitMs }) => longest(waitsMs) / fairWaitMs,
  (value) => `${value.toFixed(1)} times`,
);

function longest(waitsMs: readonly number[]): number {
  return waitsMs.reduce((most, waitMs) => Math.max(most, waitMs), 0);
}

export function waitersRow({ waiters }: WaitersSizes, commandsPerSecond: number): Row {
  return {
    what: `${whole(waiters)} waiters on one held key: all commands a second`,
    figure: commandsPerSecond.toFixed(1),
    peer: "",
    result: spreadOf([commandsPerSecond]),
    target: { atMost: 50 },
  };
}

export function renewalsRow<Peer extends ContenderName>(
  sizes: RenewalsSizes,
  commands: Readonly<Record<"Holdfast" | Peer, number>>,
  peer: Peer,
): Row {
  const { leases, ttlMs, refreshMs } = sizes;
  const held = `${whole(leases)} held leases, ttl ${ttlMs / 1_000} s`;
  return {
    what: `${held}: commands in the ${refreshMs / 1_000} s in which ${peer} renews each once`,
    figure: whole(commands.Holdfast),
    peer: `${peer}: ${whole(commands[peer])}`,
    result: spreadOf([commands.Holdfast / commands[peer]]),
    target: { atMost: 0.02 },
  };
}

/** Costs: above 1 is dearer than on a key with one other. */
export function crowdRows(kind: CrowdKind, { crowd }: CrowdSizes, costs: Costs): Row[] {
  return verbs.map((verb) => {
    const [many, one] = [costs[verb].map((cost) => cost.crowd), costs[verb].map((cost) => cost.one)];
    return {
      what: `${verb}, ${whole(crowd)} other ${kind} on the key: time of the server`,
      figure: `${whole(spreadOf(many).median)} µs`,
      peer: `one other: ${whole(spreadOf(one).median)} µs`,
      result: ratioOf(many, one),
      target: { atMost: 3 },
    };
  });
}
