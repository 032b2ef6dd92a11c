import { type PrometheusOptions, prometheusMetrics } from "holdfast/prometheus";
import { Counter, Registry } from "prom-client";
import { describe, expect, onTestFinished, test } from "vitest";
import { Scene, TTL_MS } from "../../client/scene.ts";
import { startLockServer } from "../../server/lock-server.ts";

function open(options: Omit<PrometheusOptions, "register"> = {}): Registry {
  const register = new Registry();
  onTestFinished(prometheusMetrics({ register, ...options }));
  return register;
}

/** The samples of a text in the format of Prometheus, by `name{label="value"}`. */
function samplesOf(text: string): Map<string, number> {
  const samples = new Map<string, number>();
  for (const line of text.split("\n")) {
    if (line === "" || line.startsWith("#")) continue;
    const [, name, labels = "", value] = /^([a-z_:]+)(\{.*\})? (\S+)$/.exec(line) ?? expect.fail(line);
    samples.set(`${name}${labels}`, Number(value));
  }
  return samples;
}

/** Each metric of a text with its type. */
function typesOf(text: string): string[] {
  return [...text.matchAll(/^# TYPE (\S+ \S+)$/gm)].map(([, type]) => type ?? "");
}

async function read(register: Registry): Promise<Map<string, number>> {
  return samplesOf(await register.metrics());
}

describe("prometheusMetrics", () => {
  test("counts grants, contention, waits, releases and losses by store", async () => {
    const register = open();
    const scene = new Scene();
    const first = await scene.locks.mutex("k", { ttlMs: TTL_MS }).acquire();
    await scene.locks.mutex("k").tryAcquire();
    scene.begin(scene.locks.mutex("k").acquire());
    scene.begin(scene.locks.mutex("k").acquire({ waitMs: 30 }));
    await scene.clock.advance(40);
    const before = await read(register);
    expect(before.get('holdfast_held_claims{store="memory"}')).toBe(1);
    expect(before.get('holdfast_waiting_claims{store="memory"}')).toBe(1);
    await first.release();
    await scene.clock.advance(0);
    scene.keep(await scene.locks.mutex("fixed", { ttlMs: TTL_MS, renew: false }).acquire());
    await scene.clock.advance(TTL_MS);
    expect(Object.fromEntries(await read(register))).toMatchObject({
      'holdfast_acquires_total{store="memory"}': 5,
      'holdfast_grants_total{store="memory"}': 3,
      'holdfast_refusals_total{store="memory",reason="contended"}': 1,
      'holdfast_timeouts_total{store="memory"}': 1,
      'holdfast_releases_total{store="memory"}': 1,
      'holdfast_losses_total{store="memory",reason="expired"}': 1,
      'holdfast_held_claims{store="memory"}': 1,
      'holdfast_waiting_claims{store="memory"}': 0,
      'holdfast_store_available{store="memory"}': 1,
      'holdfast_wait_seconds_count{store="memory"}': 3,
      'holdfast_wait_seconds_sum{store="memory"}': 0.04,
      'holdfast_wait_seconds_bucket{store="memory",le="0.01"}': 2,
      'holdfast_wait_seconds_bucket{store="memory",le="0.05"}': 3,
      'holdfast_wait_seconds_bucket{store="memory",le="+Inf"}': 3,
      'holdfast_hold_seconds_count{store="memory"}': 1,
      'holdfast_hold_seconds_sum{store="memory"}': 0.04,
    });
  });

  test("counts heartbeats, outages, errors, skipped tries and warnings", async () => {
    const register = open();
    const scene = new Scene({ requestTimeoutMs: 600 });
    const lease = await scene.locks.mutex("k", { ttlMs: TTL_MS }).acquire();
    await scene.clock.advance(1_000);
    scene.refuseCalls();
    scene.begin(scene.locks.mutex("other", { onUnavailable: "skip" }).tryAcquire());
    await scene.clock.advance(1_000);
    const down = await read(register);
    expect(down.get('holdfast_store_available{store="memory"}')).toBe(0);
    expect(down.get('holdfast_renewal_failures_total{store="memory",code="STORE_UNAVAILABLE"}')).toBe(1);
    scene.reconnect();
    await scene.clock.advance(500);
    await scene.locks.forceRelease("k", lease.id);
    expect(Object.fromEntries(await read(register))).toMatchObject({
      'holdfast_outages_total{store="memory"}': 1,
      'holdfast_errors_total{store="memory",code="STORE_UNAVAILABLE"}': 1,
      'holdfast_skipped_total{store="memory"}': 1,
      'holdfast_warnings_total{store="memory",code="SKIPPED_UNAVAILABLE"}': 1,
      'holdfast_force_releases_total{store="memory"}': 1,
      'holdfast_store_available{store="memory"}': 1,
    });
  });

  test("the outage that a client has seen ends with the client", async () => {
    const register = open();
    const gauge = async () => (await read(register)).get('holdfast_store_available{store="memory"}');
    const scenes = [new Scene(), new Scene()] as const;
    for (const scene of scenes) {
      scene.refuseCalls();
      scene.begin(scene.locks.mutex("k").tryAcquire());
      await scene.clock.advance(10_000);
    }
    expect(await gauge()).toBe(0);
    await scenes[0].locks.close();
    expect(await gauge()).toBe(0);
    await scenes[1].locks.close();
    expect(await gauge()).toBe(1);
  });

  test("names no key, unless there is a label for it", async () => {
    const plain = open();
    const labelled = open({ key: (key) => key.split(":")[0] ?? "" });
    const { locks } = new Scene();
    await (await locks.mutex("account:1").acquire()).release();
    await (await locks.mutex("account:2").acquire()).release();
    await (await locks.mutex('odd"\\one').acquire()).release();
    expect(await plain.metrics()).not.toMatch(/account|odd/);
    const samples = await read(labelled);
    expect(samples.get('holdfast_grants_total{store="memory",key="account"}')).toBe(2);
    expect(samples.get('holdfast_grants_total{store="memory",key="odd\\"\\\\one"}')).toBe(1);
    expect(await labelled.metrics()).not.toContain("account:");
  });

  test("a key that its client withholds is withheld here", async () => {
    const register = open({ key: (key) => key });
    await new Scene({ eventKey: false }).locks.mutex("secret").acquire();
    expect((await read(register)).get('holdfast_grants_total{store="memory",key=""}')).toBe(1);
  });

  test("levels do not count down what was held before anybody counted", async () => {
    const { locks } = new Scene();
    const before = await locks.mutex("before").acquire();
    const register = open();
    await locks.mutex("after").acquire();
    await before.release();
    const samples = await read(register);
    expect(samples.get('holdfast_held_claims{store="memory"}')).toBe(1);
    expect(samples.get('holdfast_releases_total{store="memory"}')).toBe(1);
  });

  test("goes on counting after the registry was reset", async () => {
    const register = open();
    const { locks } = new Scene();
    const lease = await locks.mutex("k").acquire();
    register.resetMetrics();
    await lease.release();
    await locks.mutex("k").acquire();
    expect(Object.fromEntries(await read(register))).toMatchObject({
      'holdfast_grants_total{store="memory"}': 1,
      'holdfast_wait_seconds_count{store="memory"}': 1,
      'holdfast_hold_seconds_count{store="memory"}': 1,
      'holdfast_held_claims{store="memory"}': 1,
    });
  });

  test("takes its metrics out of the registry when it is stopped, and can begin anew", async () => {
    const register = new Registry();
    const stop = prometheusMetrics({ register });
    expect(() => prometheusMetrics({ register })).toThrow(/already has a metric holdfast_acquires_total/);
    stop();
    stop();
    expect(await register.metrics()).toBe("\n");
    prometheusMetrics({ register })();
  });

  test("refuses an option that there is none of", () => {
    const options = { registry: new Registry() } as PrometheusOptions;
    expect(() => prometheusMetrics(options)).toThrow(/^registry is not an option of prometheusMetrics/);
  });

  test("refuses a registry that has one of the names, and leaves that as it was", async () => {
    const register = new Registry();
    const own = new Counter({ name: "holdfast_warnings_total", help: "mine", registers: [register] });
    expect(() => prometheusMetrics({ register })).toThrow(/already has a metric holdfast_warnings_total/);
    expect(register.getMetricsAsArray()).toEqual([own]);
    expect(() => prometheusMetrics({ register: "default" as never })).toThrow(/register must be a Registry/);
    expect(() => prometheusMetrics({ register: new Registry(), key: true as never })).toThrow(/key must be/);
  });

  test("agrees with the lock server on names, types and buckets that both have", async () => {
    const register = open();
    await (await new Scene().locks.mutex("k").acquire()).release();
    const ours = await register.metrics();
    const server = await startLockServer();
    onTestFinished(() => server.stop());
    const theirs = await (await fetch(`${server.url}/metrics`)).text();
    const shared = ["wait_seconds", "hold_seconds", "grants_total", "renewals_total", "releases_total"]
      .concat(["force_releases_total", "refusals_total", "errors_total", "held_claims", "waiting_claims"])
      .map((name) => `holdfast_${name} `);
    const ofShared = (text: string) =>
      typesOf(text)
        .filter((type) => shared.some((name) => type.startsWith(name)))
        .sort();
    expect(ofShared(ours)).toHaveLength(shared.length);
    expect(ofShared(ours)).toEqual(ofShared(theirs));
    const buckets = (text: string) =>
      [...text.matchAll(/^holdfast_wait_seconds_bucket\{.*?le="([^"]+)"/gm)].map(([, le]) => le);
    expect(buckets(ours).length).toBeGreaterThan(10);
    expect(buckets(ours)).toEqual(buckets(theirs));
  });
});
