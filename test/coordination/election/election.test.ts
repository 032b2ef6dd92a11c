import v8 from "node:v8";
import { createLocks, type Election, type ElectionOptions, type LeaderView, type Term } from "holdfast";
import { settled } from "holdfast/testing";
import { describe, expect, test } from "vitest";
import { Fleet, type Replica } from "../../client/fleet.ts";

const TTL_MS = 3_000;

/** Counts what is still referred to. Since Node 20.13; its types do not have it yet. */
const { queryObjects } = v8 as { queryObjects?: (of: unknown, as: { format: "count" }) => number };

interface Candidate {
  readonly replica: Replica;
  readonly election: Election;
  readonly terms: Term[];
  readonly campaign: Promise<void>;
  ended: boolean;
}

/** A body that leads until it is told to stop. */
const untilStopped = ({ signal }: Term) =>
  new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve(), { once: true }));

function campaign(
  fleet: Fleet,
  body: (term: Term) => unknown = untilStopped,
  options: ElectionOptions = {},
  replica = fleet.add(),
): Candidate {
  const election = replica.locks.election("office", { ttlMs: TTL_MS, ...options });
  const terms: Term[] = [];
  const running = election.lead(
    (term) => {
      terms.push(term);
      return body(term);
    },
    { info: `candidate ${fleet.replicas.length}` },
  );
  const candidate = { replica, election, terms, campaign: running, ended: false };
  void running.then(() => {
    candidate.ended = true;
  });
  return candidate;
}

async function threeCandidates(fleet: Fleet): Promise<[Candidate, Candidate, Candidate]> {
  const candidates: Candidate[] = [];
  for (let each = 0; each < 3; each++) {
    candidates.push(campaign(fleet));
    await fleet.advance(100);
  }
  return candidates as [Candidate, Candidate, Candidate];
}

describe("an election", () => {
  test("has one leader, whom everybody can ask for", async () => {
    const fleet = new Fleet();
    const [first, second, third] = await threeCandidates(fleet);
    await fleet.advance(60_000, 500);
    expect([first, second, third].map(({ terms }) => terms.length)).toEqual([1, 0, 0]);
    expect(await second.election.leader()).toMatchObject({
      owner: first.replica.locks.owner,
      info: "candidate 1",
      fence: first.terms[0]?.fence,
      self: false,
    });
    expect(await first.election.leader()).toMatchObject({ self: true });
    expect(first.election.status()).toMatchObject({ state: "leading", fence: first.terms[0]?.fence });
    expect(second.election.status()).toMatchObject({ state: "campaigning", available: true });
    expect(first.terms[0]?.held).toBe(true);
  });

  test("has nobody when nobody campaigns", async () => {
    const { locks } = new Fleet().add();
    expect(await locks.election("office").leader()).toBeNull();
    expect(locks.election("office").status().state).toBe("idle");
    await locks.election("office").resign();
  });

  test("after a crash the next one leads when the ttl is over", async () => {
    const fleet = new Fleet();
    const [first, second] = await threeCandidates(fleet);
    await fleet.advance(10_000);
    first.replica.crash();
    const crashedMs = fleet.nowMs;
    while (second.terms.length === 0) await fleet.advance(50);
    expect(fleet.nowMs - crashedMs).toBeLessThanOrEqual(TTL_MS + 100);
    expect(second.terms[0]?.fence).toBeGreaterThan(first.terms[0]?.fence ?? 0n);
  });

  test("after a resignation the next one leads at once", async () => {
    const fleet = new Fleet();
    const [first, second] = await threeCandidates(fleet);
    const resigned = first.election.resign();
    expect(first.terms[0]?.signal.aborted).toBe(true);
    await fleet.advance(50);
    await resigned;
    expect(second.terms).toHaveLength(1);
    expect(first.ended).toBe(true);
    expect(first.election.status().state).toBe("idle");
  });

  test("resigning while waiting never elects later", async () => {
    const fleet = new Fleet();
    const [first, second, third] = await threeCandidates(fleet);
    // Its release is held back, so the store may still grant it the office.
    second.replica.faults = ({ verb }) => (verb === "release" ? { beforeMs: 300 } : undefined);
    const resigned = second.election.resign();
    await first.election.resign();
    await fleet.advance(2_000);
    await resigned;
    expect(second.terms).toEqual([]);
    expect(second.ended).toBe(true);
    expect(third.terms).toHaveLength(1);
    await fleet.advance(30_000, 500);
    expect(second.terms).toEqual([]);
  });

  test("resigning at the very moment of being elected elects nobody", async () => {
    const fleet = new Fleet();
    const [first, second, third] = await threeCandidates(fleet);
    second.replica.faults = ({ verb }) => (verb === "push" ? { beforeMs: 20 } : undefined);
    await first.election.resign();
    // The store has granted the office to the second, and the message is still on its way.
    expect(await first.election.leader()).toMatchObject({ owner: second.replica.locks.owner });
    const resigned = second.election.resign();
    await fleet.advance(100);
    await resigned;
    expect(second.terms).toEqual([]);
    expect(third.terms).toHaveLength(1);
  });

  test("whoever resigns, at whatever moment, is not called any more", async () => {
    let called = 0;
    for (let hops = 0; hops < 40; hops++) {
      const { locks } = new Fleet().add();
      const election = locks.election("office");
      let late = false;
      const leading = election.lead(({ signal }) => {
        called++;
        late ||= signal.aborted;
      });
      // Every step of a promise on the way from the store's answer to the body.
      for (let hop = 0; hop < hops; hop++) await undefined;
      await election.resign();
      await leading;
      expect(late, `after ${hops} steps`).toBe(false);
      expect(await election.leader()).toBeNull();
    }
    expect(called).toBeGreaterThan(0);
    expect(called).toBeLessThan(40);
  });

  test("whoever lost the office campaigns again, when its body has ended", async () => {
    const fleet = new Fleet();
    const [first, second] = await threeCandidates(fleet);
    first.replica.cutOff();
    await fleet.advance(TTL_MS + 200);
    expect(first.terms[0]?.signal.reason).toMatchObject({ code: "LEASE_LOST" });
    expect(second.terms).toHaveLength(1);
    first.replica.reconnect();
    await fleet.advance(10_000);
    expect(first.election.status().state).toBe("campaigning");
  });

  // The office is lost, the body goes on, and this client could win again.
  test("a body that ignores its signal never runs beside a second one in the same process", async () => {
    const fleet = new Fleet();
    let open = () => {};
    const deaf = campaign(
      fleet,
      () =>
        new Promise<void>((resolve) => {
          open = resolve;
        }),
    );
    await fleet.advance(100);
    deaf.replica.cutOff();
    await fleet.advance(TTL_MS + 200);
    deaf.replica.reconnect();
    await fleet.advance(30_000, 500);
    expect(deaf.terms).toHaveLength(1);
    const again = deaf.replica.locks.election("office");
    await expect(again.lead(() => {})).rejects.toThrow(/already campaigns for "office"/);
    open();
    await fleet.advance(2_000);
    expect(deaf.terms).toHaveLength(2);
    expect(deaf.terms[1]?.fence).toBeGreaterThan(deaf.terms[0]?.fence ?? 0n);
  });

  test("a body that fails is told, and gives others their turn", async () => {
    const fleet = new Fleet();
    const failing = campaign(fleet, () => {
      throw new Error("no quorum of spoons");
    });
    await fleet.advance(10);
    const next = campaign(fleet);
    await fleet.advance(5_000);
    expect(failing.replica.warnings).toMatchObject([{ code: "RUN_FAILED", key: "office" }]);
    expect(next.terms).toHaveLength(1);
    expect(failing.terms).toHaveLength(1);
  });

  test("a body that ends at once is called again after a while, not in a loop", async () => {
    const fleet = new Fleet();
    const brief = campaign(fleet, () => {}, { retryMs: 1_000 });
    await fleet.advance(10_500);
    expect(brief.terms.length).toBeGreaterThanOrEqual(9);
    expect(brief.terms.length).toBeLessThanOrEqual(11);
  });

  test("while the store is away nobody is elected, and that is told", async () => {
    const fleet = new Fleet();
    const replica = fleet.add();
    replica.cutOff();
    const lonely = campaign(fleet, untilStopped, {}, replica);
    await fleet.advance(10_000);
    expect(lonely.terms).toEqual([]);
    expect(lonely.election.status()).toMatchObject({
      available: false,
      lastError: { code: "STORE_UNAVAILABLE" },
    });
    expect(replica.codes()).toContain("SKIPPED_UNAVAILABLE");
    await expect(asked(fleet, lonely.election.leader())).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
    replica.reconnect();
    await fleet.advance(3_000);
    expect(lonely.terms).toHaveLength(1);
  });

  test("closing the client resigns", async () => {
    const fleet = new Fleet();
    const [first, second] = await threeCandidates(fleet);
    const closing = first.replica.locks.close();
    await fleet.advance(50);
    await closing;
    expect(first.ended).toBe(true);
    expect(second.terms).toHaveLength(1);
    expect(first.replica.clock.pendingTimers).toBe(0);
    await expect(first.election.lead(() => {})).rejects.toMatchObject({ code: "CLOSED" });
  });

  test("a signal resigns", async () => {
    const fleet = new Fleet();
    const { locks } = fleet.add();
    const controller = new AbortController();
    const lead = locks.election("office").lead(untilStopped, { signal: controller.signal });
    await fleet.advance(100);
    controller.abort();
    await lead;
    await locks.election("office").lead(untilStopped, { signal: AbortSignal.abort() });
    expect(await locks.election("office").leader()).toBeNull();
  });

  test("what is wrong is said at once", async () => {
    const locks = createLocks();
    expect(() => locks.election("")).toThrow(/key must be/);
    expect(() => locks.election("k", { ttlMs: 1 })).toThrow(/ttlMs/);
    expect(() => locks.election("k", { observeMs: 1 })).toThrow(/observeMs/);
    expect(() => locks.election("k", { retryMs: -1 })).toThrow(/retryMs/);
    const election = locks.election("k");
    await expect(election.lead(null as never)).rejects.toThrow(/body must be a function/);
    await expect(election.lead(() => {}, { info: "x".repeat(2_000) })).rejects.toThrow(/info must be/);
    await expect(election.lead(() => {}, { priority: -1 })).rejects.toThrow(/priority/);
    await expect(election.lead(() => {}, { signal: {} as never })).rejects.toThrow(/signal must be/);
    expect(election.status().state).toBe("idle");
    await locks.close();
  });
});

/** The result of a call while time passes. */
async function asked<T>(fleet: Fleet, call: Promise<T>): Promise<T> {
  call.catch(() => {});
  await fleet.advance(6_000);
  return call;
}

describe("observing an election", () => {
  /** The views of an observer, as short words. */
  function observed(election: Election, signal?: AbortSignal): { readonly told: string[]; ended: boolean } {
    const seen = { told: [] as string[], ended: false };
    const word = (view: LeaderView) => (view.state === "led" ? view.leader.info : view.state);
    void (async () => {
      for await (const view of election.observe(signal === undefined ? {} : { signal }))
        seen.told.push(word(view));
      seen.ended = true;
    })();
    return seen;
  }

  test("tells who leads, and every change", async () => {
    const fleet = new Fleet();
    const watcher = fleet.add();
    const seen = observed(watcher.locks.election("office"));
    await fleet.advance(100);
    expect(seen.told).toEqual(["vacant"]);
    const first = campaign(fleet);
    await fleet.advance(1_100);
    const second = campaign(fleet);
    await fleet.advance(2_000);
    expect(seen.told).toEqual(["vacant", "candidate 2"]);
    void first.election.resign();
    await fleet.advance(1_100);
    void second.election.resign();
    await fleet.advance(1_100);
    expect(seen.told).toEqual(["vacant", "candidate 2", "candidate 3", "vacant"]);
  });

  test("a change that this client takes part in is told at once", async () => {
    const fleet = new Fleet();
    const replica = fleet.add();
    const election = replica.locks.election("office", { observeMs: 3_600_000 });
    const seen = observed(election);
    await fleet.advance(50);
    void election.lead(untilStopped, { info: "me" });
    await fleet.advance(50);
    expect(seen.told).toEqual(["vacant", "me"]);
    await election.resign();
    await fleet.advance(50);
    expect(seen.told).toEqual(["vacant", "me", "vacant"]);
  });

  test("costs one look in an interval, however many observe, and none when nobody does", async () => {
    const fleet = new Fleet();
    const replica = fleet.add();
    let looks = 0;
    replica.faults = ({ verb }) => {
      if (verb === "look") looks++;
      return undefined;
    };
    const election = replica.locks.election("office", { observeMs: 1_000 });
    const controller = new AbortController();
    const all = Array.from({ length: 20 }, () => observed(election, controller.signal));
    await fleet.advance(10_000);
    expect(looks).toBeGreaterThanOrEqual(10);
    expect(looks).toBeLessThanOrEqual(13);
    controller.abort();
    await fleet.advance(2_000);
    const before = looks;
    await fleet.advance(10_000);
    expect(looks).toBe(before);
    expect(all.every(({ ended, told }) => ended && told.length === 1)).toBe(true);
    expect(replica.clock.pendingTimers).toBe(0);
  });

  test("an outage is told apart from an empty office, and ends", async () => {
    const fleet = new Fleet();
    const leader = campaign(fleet);
    await fleet.advance(100);
    const watcher = fleet.add();
    const seen = observed(watcher.locks.election("office"));
    await fleet.advance(100);
    watcher.cutOff();
    await fleet.advance(3_000);
    watcher.reconnect();
    await fleet.advance(3_000);
    expect(seen.told).toEqual(["candidate 1", "unknown", "candidate 1"]);
    expect(leader.terms).toHaveLength(1);
  });

  test("return ends an observation whose next is pending, and so does a client that closes", async () => {
    const fleet = new Fleet();
    const replica = fleet.add();
    const views = replica.locks.election("office").observe();
    await Promise.all([views.next(), fleet.advance(100)]);
    const pending = views.next();
    const left = views.return();
    expect(await pending).toEqual({ done: true, value: undefined });
    expect(await left).toEqual({ done: true, value: undefined });
    expect(await views.next()).toEqual({ done: true, value: undefined });
    expect(replica.clock.pendingTimers).toBe(0);

    const thrown = replica.locks.election("office").observe();
    await Promise.all([thrown.next(), fleet.advance(100)]);
    const other = thrown.next();
    await expect(thrown.throw(new Error("enough"))).rejects.toThrow("enough");
    expect((await other).done).toBe(true);
  });

  test.skipIf(queryObjects === undefined)("leaves nothing behind for each change of the leader", async () => {
    const promises = () => queryObjects?.(Promise, { format: "count" }) ?? 0;
    const fleet = new Fleet();
    const replica = fleet.add();
    const election = replica.locks.election("office", { observeMs: 3_600_000, retryMs: 0 });
    const seen = observed(election);
    await fleet.advance(50);
    const before = promises();
    for (let term = 0; term < 50; term++) {
      void election.lead(untilStopped, { info: `${term}` });
      await fleet.advance(20);
      await election.resign();
      await fleet.advance(20);
    }
    expect(seen.told).toHaveLength(101);
    expect(promises() - before).toBeLessThan(50);
  });

  test("whoever is slow sees the latest, and closing the client ends it", async () => {
    const fleet = new Fleet();
    const replica = fleet.add();
    const election = replica.locks.election("office");
    const views = election.observe();
    const first = views.next();
    await fleet.advance(100);
    expect((await first).value).toMatchObject({ state: "vacant" });
    for (let term = 0; term < 5; term++) {
      const leading = election.lead(untilStopped);
      await fleet.advance(100);
      if (term < 4) await election.resign();
      else leading.catch(() => {});
    }
    expect((await views.next()).value).toMatchObject({ state: "led", leader: { self: true } });
    const closing = replica.locks.close();
    await fleet.advance(100);
    await closing;
    expect((await views.next()).done).toBe(true);
    await settled();
    expect(replica.clock.pendingTimers).toBe(0);
  });
});
