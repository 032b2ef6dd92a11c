/** The memory store and the client over it, side by side with async-mutex and with themselves at other sizes. */
import { percent, perSecond, type Row, whole } from "../report.ts";
import type { Pair } from "../rounds.ts";
import { ratioOf, spreadOf } from "../statistics.ts";
import type { Suite } from "../suite.ts";
import { measureContended, measureUncontended } from "./contenders.ts";
import { type HeldKeysResult, type HeldKeysSizes, measureHeldKeys, measureHeldRecords } from "./held-keys.ts";
import { measureRenewals, type RenewalsResult, type RenewalsSizes } from "./renewals.ts";

interface Sizes {
  readonly rounds: number;
  readonly cycles: number;
  readonly callers: number;
  readonly heldKeys: HeldKeysSizes;
  readonly renewals: RenewalsSizes;
}

const full: Sizes = {
  rounds: 21,
  cycles: 50_000,
  callers: 100,
  heldKeys: { few: 1_000, some: 100_000, many: 1_000_000, cycles: 50_000, rounds: 21 },
  renewals: { leases: 100_000, ttlMs: 30_000, periods: 3 },
};

const small: Sizes = {
  rounds: 3,
  cycles: 200,
  callers: 10,
  heldKeys: { few: 10, some: 100, many: 1_000, cycles: 200, rounds: 3 },
  renewals: { leases: 100, ttlMs: 300, periods: 2 },
};

export const memorySuite: Suite = {
  name: "memory",
  async run({ quick, progress }) {
    const sizes = quick ? small : full;
    progress("One caller …");
    const uncontended = await measureUncontended(sizes.cycles, sizes.rounds);
    progress("Many callers on one key …");
    const contended = await measureContended(sizes.callers, sizes.cycles, sizes.rounds);
    progress("Many held keys …");
    const heldKeys = await measureHeldKeys(sizes.heldKeys);
    progress("Many held keys, in the store alone …");
    const heldRecords = await measureHeldRecords(sizes.heldKeys);
    progress("Many held keys, with a larger young generation …");
    const roomy = await measureHeldKeys(sizes.heldKeys, ["--max-semi-space-size=128"]);
    progress("Many renewals …");
    const renewals = await measureRenewals(sizes.renewals);
    return {
      title: "The memory store",
      method: methodOf(sizes),
      rows: [
        besideMutex("uncontended acquire and release", uncontended),
        besideMutex(`acquire and release, ${sizes.callers} callers on one key`, contended),
        besideFew("the store alone, fixed key", sizes.heldKeys, heldRecords.fixed),
        besideFew("the store alone, fresh keys", sizes.heldKeys, heldRecords.fresh),
        besideFew("acquire and release of a fixed key", sizes.heldKeys, heldKeys.fixed),
        besideFew("acquire and release of fresh keys", sizes.heldKeys, heldKeys.fresh),
        {
          ...besideFew("fixed key, larger young generation", sizes.heldKeys, roomy.fixed),
          target: undefined,
        },
        {
          ...besideFew("fresh keys, larger young generation", sizes.heldKeys, roomy.fresh),
          target: undefined,
        },
        memoryRow(sizes.heldKeys, heldKeys),
        ...renewalsRows(sizes.renewals, renewals),
      ],
    };
  },
};

/** Speeds: above 1 is faster than async-mutex. */
function besideMutex(what: string, { ours, theirs }: Pair): Row {
  return {
    what,
    figure: perSecond(spreadOf(ours).median),
    peer: `async-mutex: ${perSecond(spreadOf(theirs).median)}`,
    result: ratioOf(theirs, ours),
    target: { atLeast: 0.5 },
  };
}

/** Costs: above 1 is slower than with few keys held. */
function besideFew(what: string, sizes: HeldKeysSizes, { ours, theirs }: Pair): Row {
  return {
    what: `${what}, ${whole(sizes.many)} keys held`,
    figure: `${whole(spreadOf(ours).median)} ns`,
    peer: `${whole(sizes.few)} keys held: ${whole(spreadOf(theirs).median)} ns`,
    result: ratioOf(ours, theirs),
    target: { atMost: 1.3 },
  };
}

function memoryRow(sizes: HeldKeysSizes, result: HeldKeysResult): Row {
  return {
    what: `memory of a held lease, ${whole(sizes.many)} held`,
    figure: `${whole(result.bytesAtMany)} bytes`,
    peer: `${whole(sizes.some)} held: ${whole(result.bytesAtSome)} bytes`,
  };
}

function renewalsRows(sizes: RenewalsSizes, { idle, renewing }: RenewalsResult): Row[] {
  const what = `${whole(sizes.leases)} leases renewing, ttl ${sizes.ttlMs / 1_000} s`;
  const rate = spreadOf(renewing.map(({ renewalsPerSecond }) => renewalsPerSecond));
  const delay = spreadOf(renewing.map(({ longestDelayMs }) => longestDelayMs));
  const cpu = spreadOf(renewing.map((stretch) => stretch.cpu - idle.cpu));
  return [
    {
      what: `${what}: processor, as a fraction of one core`,
      figure: `${percent(cpu.median, 2)}, ${whole(rate.median)} renewals/s`,
      peer: `idle, subtracted: ${percent(idle.cpu, 2)}`,
      result: cpu,
      target: { atMost: 0.05 },
    },
    {
      what: `${what}: longest delay of the event loop`,
      figure: `${delay.max.toFixed(1)} ms`,
      peer: `idle: ${idle.longestDelayMs.toFixed(1)} ms`,
    },
  ];
}

function methodOf({ rounds, cycles, heldKeys, renewals }: Sizes): string[] {
  return [
    "Speeds are compared with [async-mutex](https://www.npmjs.com/package/async-mutex), which has no leases, ttls, fences or " +
      "owners: the ratio is what those cost. A cycle is `const lease = await mutex.acquire(); await lease.release()` against " +
      "`const release = await mutex.acquire(); release()`.",
    `Both sides take turns in rounds of ${whole(cycles)} cycles, ${rounds} rounds each after a warm-up, and each round is divided by its ` +
      "neighbour: what disturbs the machine disturbs both. Ratios of speeds are Holdfast's by the other's, ratios of costs are that of " +
      "many keys by that of few.",
    `The held keys are ${whole(heldKeys.few)} and ${whole(heldKeys.many)} leases in two processes that take turns. Their ttl is a day, so that no ` +
      "heartbeat falls into a round. The memory of a lease is all of the heap that it adds, garbage collected: in the client, in the " +
      "store, its key, and its place in the array that keeps it.",
    "With a million leases the heap has some 3,700 pages, and V8 looks at each of them in every collection of young garbage. That is " +
      "most of what a cycle costs more. The rows with a larger young generation (`node --max-semi-space-size=128`, in megabytes) " +
      "collect eight times less often.",
    `The renewing leases are acquired over ${renewals.ttlMs / 3_000} s. Then ${renewals.periods} renewal periods are measured one by one, after one ` +
      "that is not.",
  ];
}
