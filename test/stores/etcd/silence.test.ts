/** Connections that a network has forgotten: nothing comes back over them, and no end is reported. */
import { once } from "node:events";
import { ConsecutiveBreaker, circuitBreaker, handleWhen } from "cockatiel";
import { Etcd3, type IOptions, isRecoverableError } from "etcd3";
import { createLocks } from "holdfast";
import { etcdStore } from "holdfast/etcd";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { canRunEtcd, type EtcdMember, startEtcd } from "../../engines/etcd.ts";
import { forgetful } from "../forgetful-network.ts";
import { openSockets } from "../open-sockets.ts";

const timeoutMs = 2_000;
const REST_MS = 1_500;

/** As docs/stores/etcd.md advises for a short `requestTimeoutMs`. */
const advised = {
  faultHandling: {
    host: () =>
      circuitBreaker(handleWhen(isRecoverableError), {
        halfOpenAfter: REST_MS,
        breaker: new ConsecutiveBreaker(3),
      }),
  },
};

describe.skipIf(!canRunEtcd())("etcd: silent connections", { timeout: 60_000 }, () => {
  let server: EtcdMember;
  beforeAll(async () => {
    server = await startEtcd();
  }, 60_000);
  afterAll(() => server?.stop());

  function open(port: number, options: Omit<IOptions, "hosts">, requestTimeoutMs: number) {
    const client = new Etcd3({ hosts: `http://127.0.0.1:${port}`, ...options });
    const locks = createLocks(etcdStore(client, { requestTimeoutMs }), { onWarning: () => {} });
    onTestFinished(async () => {
      await locks.close();
      client.close();
    });
    return locks;
  }

  test.each([0, 1_000])(
    "the store recovers within two timeouts, %d ms after a failure, and sockets do not pile up",
    async (laterMs) => {
      const network = await forgetful(server.port);
      onTestFinished(() => network.reset());
      const locks = open(network.port, advised, timeoutMs);
      const keys = ["a", "b", "c", "d"];
      await Promise.all(keys.map((key) => locks.mutex(key).run(() => {})));
      network.fallSilent();
      for (let round = 0; round < 2; round++) {
        const asked = await Promise.allSettled(keys.map((key) => locks.mutex(key).tryAcquire()));
        expect(asked.map(({ status }) => status)).toEqual(keys.map(() => "rejected"));
      }
      await new Promise((resolve) => setTimeout(resolve, laterMs));
      network.comeBack();
      const sinceMs = performance.now();
      await expect
        .poll(
          () =>
            locks
              .mutex("after")
              .tryRun(() => {})
              .then(
                ({ ran }) => ran,
                () => false,
              ),
          {
            timeout: 4 * timeoutMs,
          },
        )
        .toBe(true);
      expect(performance.now() - sinceMs).toBeLessThan(2 * timeoutMs);
      expect(openSockets(network.port)).toBeLessThanOrEqual(6);
    },
  );

  test("a client that avoids a host for longer than a request timeout is reported once", async () => {
    const network = await forgetful(server.port);
    onTestFinished(() => network.reset());
    const locks = open(network.port, {}, 500);
    await locks.mutex("k").run(() => {});
    network.fallSilent();
    const warnings: unknown[] = [];
    const note = (warning: unknown) => warnings.push(warning);
    process.on("warning", note);
    onTestFinished(() => void process.off("warning", note));
    const warned = once(process, "warning");
    for (let round = 0; round < 3; round++) {
      await expect(locks.mutex("k").tryAcquire()).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
    }
    await warned;
    expect(warnings).toMatchObject([
      { code: "SLOW_RECOVERY", message: expect.stringContaining("faultHandling.host") },
    ]);
  });
});
