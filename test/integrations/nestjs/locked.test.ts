import { Controller, Get, Inject, Injectable, Module, Param, Post } from "@nestjs/common";
import { NestFactory } from "@nestjs/core";
import { createLocks, type Locks, memoryStore } from "holdfast";
import { currentLease, HoldfastModule, InjectLocks, Locked } from "holdfast/nestjs";
import { describe, expect, onTestFinished, test } from "vitest";
import { gate } from "./gate.ts";

/** Holds the bodies of the methods below. Each test makes its own. */
let passage = gate();

@Injectable()
class Accounts {
  readonly log: string[] = [];

  @Locked((id: string) => `account:${id}`)
  async settle(id: string, what: string): Promise<string> {
    this.log.push(`${what} begins`);
    await passage.open;
    this.log.push(`${what} ends`);
    return `${what} of ${id}`;
  }

  @Locked("report", { contended: "skip" })
  async report(): Promise<string> {
    await passage.open;
    return "reported";
  }

  @Locked((id: string) => `account:${id}`, { waitMs: 30 })
  async hurry(id: string): Promise<string> {
    return `hurried ${id}`;
  }

  @Locked(function (this: Accounts) {
    return `log of ${this.log.length}`;
  })
  async keyOfInstance(): Promise<string | undefined> {
    return currentLease()?.key;
  }

  @Locked("outer")
  async outer(): Promise<(string | undefined)[]> {
    return [currentLease()?.key, await this.inner(), currentLease()?.key];
  }

  @Locked("inner")
  async inner(): Promise<string | undefined> {
    return currentLease()?.key;
  }

  @Locked("self")
  async recurse(): Promise<void> {
    await this.recurse();
  }

  @Locked("short", { ttlMs: 60, renew: false })
  async outlive(): Promise<unknown> {
    const signal = currentLease()?.signal;
    return new Promise((resolve) => signal?.addEventListener("abort", () => resolve(signal.reason)));
  }

  @Locked("failing")
  async fail(): Promise<void> {
    throw new Error("body");
  }
}

@Controller("accounts")
class AccountsController {
  constructor(@Inject(Accounts) readonly accounts: Accounts) {}

  @Get("above/:id")
  @Locked((id: string) => `http:${id}`)
  async routeAbove(@Param("id") id: string): Promise<string> {
    return `${id} with ${currentLease()?.key}`;
  }

  @Locked((id: string) => `http:${id}`)
  @Get("below/:id")
  async routeBelow(@Param("id") id: string): Promise<string> {
    return `${id} with ${currentLease()?.key}`;
  }

  @Post("settle/:id")
  settle(@Param("id") id: string): Promise<string> {
    return this.accounts.settle(id, "request");
  }
}

@Injectable()
class Asker {
  constructor(@InjectLocks() readonly locks: Locks) {}
}

@Module({
  imports: [
    HoldfastModule.forRootAsync({ useFactory: async () => ({ store: memoryStore(), graceMs: 200 }) }),
  ],
  providers: [Accounts, Asker],
  controllers: [AccountsController],
})
class Application {}

async function start() {
  passage = gate();
  const app = await NestFactory.create(Application, { logger: false });
  onTestFinished(() => {
    passage.pass();
    return app.close();
  });
  return { app, accounts: app.get(Accounts), locks: app.get(Asker).locks };
}

describe("@Locked", () => {
  test("runs calls with the same key one after the other, and others beside them", async () => {
    const { accounts } = await start();
    const settling = [
      accounts.settle("1", "first"),
      accounts.settle("1", "second"),
      accounts.settle("2", "other"),
    ];
    await expect.poll(() => accounts.log).toEqual(["first begins", "other begins"]);
    passage.pass();
    expect(await Promise.all(settling)).toEqual(["first of 1", "second of 1", "other of 2"]);
    expect(accounts.log.indexOf("first ends")).toBeLessThan(accounts.log.indexOf("second begins"));
  });

  test("can skip a call while another has the lock", async () => {
    const { accounts } = await start();
    const first = accounts.report();
    await expect.poll(() => accounts.report()).toBeUndefined();
    passage.pass();
    expect(await first).toBe("reported");
    expect(await accounts.report()).toBe("reported");
  });

  test("waits no longer than it is told to", async () => {
    const { accounts, locks } = await start();
    const lease = await locks.mutex("account:1").acquire();
    await expect(accounts.hurry("1")).rejects.toMatchObject({ code: "ACQUIRE_TIMEOUT", key: "account:1" });
    await lease.release();
    expect(await accounts.hurry("1")).toBe("hurried 1");
  });

  test("says in the store who asks", async () => {
    const { accounts, locks } = await start();
    const settling = accounts.settle("1", "first");
    await expect.poll(async () => (await locks.inspect("account:1")).held[0]?.info).toBe("Accounts.settle");
    passage.pass();
    await settling;
  });

  test("makes the key with the instance as this", async () => {
    const { accounts } = await start();
    expect(await accounts.keyOfInstance()).toBe("log of 0");
  });

  test("gives the body the innermost lease, and nothing to code outside of it", async () => {
    const { accounts } = await start();
    expect(await accounts.outer()).toEqual(["outer", "inner", "outer"]);
    expect(currentLease()).toBeUndefined();
  });

  test("refuses a call that would wait for itself, and frees the lock", async () => {
    const { accounts, locks } = await start();
    await expect(accounts.recurse()).rejects.toMatchObject({ code: "DEADLOCK", key: "self" });
    expect((await locks.inspect("self")).heldCount).toBe(0);
  });

  test("aborts the signal of a lease that is lost under the body", async () => {
    const { accounts } = await start();
    expect(await accounts.outlive()).toMatchObject({ code: "LEASE_LOST", reason: "expired" });
  });

  test("passes an error of the body on, and frees the lock", async () => {
    const { accounts, locks } = await start();
    await expect(accounts.fail()).rejects.toThrow("body");
    expect((await locks.inspect("failing")).heldCount).toBe(0);
  });

  test.each(["above", "below"])(
    "a route decorator %s it keeps working, with its parameters",
    async (place) => {
      const { app } = await start();
      await app.listen(0, "127.0.0.1");
      const response = await fetch(`${await app.getUrl()}/accounts/${place}/7`);
      expect(await response.text()).toBe("7 with http:7");
    },
  );

  test("keeps the name of its method", () => {
    expect(Accounts.prototype.settle.name).toBe("settle");
  });

  test("says what is missing when its object was not made by Nest", async () => {
    await expect(new Accounts().settle("1", "first")).rejects.toThrow(
      /Accounts\.settle is @Locked, but Nest did not make its object with HoldfastModule/,
    );
  });

  test.each([
    ["contended", () => Locked("k", { contended: "maybe" as never }), /contended/],
    ["waitMs with skip", () => Locked("k", { contended: "skip", waitMs: 5 }), /waitMs 5 has no effect/],
  ])("refuses %s that makes no sense", (_, decorate, message) => {
    expect(decorate).toThrow(message);
  });
});

describe("HoldfastModule", () => {
  test("stops waiting calls when the application stops, lets requests end, and then closes the client", async () => {
    const { app, accounts, locks } = await start();
    await app.listen(0, "127.0.0.1");
    const url = await app.getUrl();
    const request = fetch(`${url}/accounts/settle/1`, { method: "POST" });
    await expect.poll(() => accounts.log).toEqual(["request begins"]);
    const waiting = accounts.settle("1", "late");
    await expect.poll(() => locks.stats().waiting).toBe(1);
    const closing = app.close();
    await expect(waiting).rejects.toMatchObject({ code: "CLOSED" });
    expect(locks.stats()).toMatchObject({ held: 1, lost: 0 });
    passage.pass();
    expect(await (await request).text()).toBe("request of 1");
    await closing;
    expect(locks.stats()).toMatchObject({ held: 0, released: 1, lost: 0 });
    await expect(locks.mutex("k").tryAcquire()).rejects.toMatchObject({ code: "CLOSED" });
  });

  test("closes the store that it was given, but not a client", async () => {
    const locks = createLocks(memoryStore());
    const app = await NestFactory.createApplicationContext(HoldfastModule.forRoot({ locks }), {
      logger: false,
    });
    await app.close();
    expect((await locks.mutex("k").acquire()).held).toBe(true);
    await locks.close();

    const store = memoryStore();
    const other = await NestFactory.createApplicationContext(HoldfastModule.forRoot({ store }), {
      logger: false,
    });
    await other.close();
    await expect(store.look({ key: "k", maxClaims: 1 })).rejects.toMatchObject({ code: "CLOSED" });
  });

  test("makes the client with what other providers know", async () => {
    @Module({ providers: [{ provide: "NAME", useValue: "billing" }], exports: ["NAME"] })
    class Configuration {}
    const module = HoldfastModule.forRootAsync({
      imports: [Configuration],
      inject: ["NAME"],
      useFactory: (application: string) => ({ store: memoryStore(), application }),
    });
    @Module({ imports: [module], providers: [Asker] })
    class Root {}
    const app = await NestFactory.createApplicationContext(Root, { logger: false });
    onTestFinished(() => app.close());
    const { locks } = app.get(Asker);
    const lease = await locks.mutex("k").acquire();
    expect((await locks.inspect("k")).held[0]?.application).toBe("billing");
    await lease.release();
  });

  test("its client has the second heartbeat that it was given", async () => {
    let started = 0;
    const kept = { provenUntilMs: 0, loss: undefined, prove() {}, drop() {} };
    const thread = {
      start() {
        started++;
        return { keep: () => kept, close: async () => {} };
      },
    };
    const module = HoldfastModule.forRoot({ store: memoryStore(), thread });
    const app = await NestFactory.createApplicationContext(module, { logger: false });
    await app.close();
    expect(started).toBe(1);
  });

  test.each([
    ["neither a store nor a client", {}, /neither was given/],
    ["both", { store: memoryStore(), locks: createLocks(memoryStore()) }, /both was given/],
    ["a wrong grace", { store: memoryStore(), graceMs: -1 }, /graceMs must be/],
    [
      "options that an existing client cannot have",
      { locks: createLocks(memoryStore()), application: "billing", graceMs: 1 },
      /application, graceMs must not be set together with locks/,
    ],
  ])("refuses %s", async (_, options, message) => {
    const starting = NestFactory.createApplicationContext(HoldfastModule.forRoot(options), {
      logger: false,
      abortOnError: false,
    });
    await expect(starting).rejects.toThrow(message);
  });

  test("refuses a forRootAsync without a factory", () => {
    expect(() => HoldfastModule.forRootAsync({} as never)).toThrow(/needs useFactory/);
  });
});
