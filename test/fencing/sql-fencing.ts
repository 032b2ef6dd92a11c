/** The promises of fenced transactions in every SQL database with a server. */
import { createLocks } from "holdfast";
import { type Fenced, type FenceTable, MAX_FENCE, type SqlFenceOptions } from "holdfast/fencing";
import { expect, onTestFinished, test } from "vitest";
import { describeInterleavings, type Level, outcome } from "./interleavings.ts";
import { checkRegister, type RegisterWrite } from "./register-model.ts";

type Rows = readonly Readonly<Record<string, unknown>>[];

export interface SqlConnection {
  /** At the default level, unless one is named. */
  begin(level?: string): Promise<unknown>;
  query(sql: string): Promise<Rows>;
  fence(lease: Fenced, options?: SqlFenceOptions): Promise<void>;
  /** Whether the server has it wait for another transaction. */
  waits(): Promise<boolean>;
  /** The server ends it. */
  cutOff(): Promise<unknown>;
  end(): unknown;
}

export interface FencedDatabase {
  connect(): Promise<SqlConnection>;
  /** Runs a statement outside of any transaction. */
  admin(sql: string): Promise<Rows>;
  /** The guard itself, for what is no connection with a transaction. */
  fence(client: never, lease: Fenced): Promise<void>;
  migrate(options?: FenceTable): Promise<void>;
  /** The name of the function that migrates. */
  readonly migration: string;
  readonly levels: readonly Level[];
  /** The levels at which random writers are compared with the model. */
  readonly modelLevels: readonly string[];
  /** A table to read from for a snapshot, without locking the marks. */
  readonly looksAt: string;
  /** The statement that limits the lock waits of a connection to a second. */
  readonly hurry: string;
  /** Makes a place called billing for other tables. */
  readonly makePlace: string;
  /** Clients that are no single connection. */
  strangers(): Promise<readonly unknown[]>;
}

/** A table for what is written behind the guard. */
export const registerTable = (id: string) =>
  `create table register (id ${id} primary key, resource varchar(64), fence varchar(20), value text)`;

export function testFencedTransactions(database: FencedDatabase): void {
  async function connect(): Promise<SqlConnection> {
    const connection = await database.connect();
    onTestFinished(() => void connection.end());
    return connection;
  }

  describeInterleavings(database.levels, async ({ name }) => {
    const connection = await connect();
    await connection.begin(name);
    return {
      look: () => connection.query(`select count(*) from ${database.looksAt}`),
      guard: (resource, fence) => connection.fence({ fence }, { resource }),
      waits: () => connection.waits(),
      commit: () => connection.query("commit"),
      rollback: () => connection.query("rollback"),
    };
  });

  test.each(database.modelLevels)("writers in any order agree with the model, at %s", async (level) => {
    await checkRegister({
      runs: 12,
      rollsBack: true,
      write: (write) => writeRegister(level, write),
      async written(resource) {
        const rows = await database.admin(
          `select fence, value from register where resource = '${resource}' order by id`,
        );
        return rows.map(({ fence, value }) => ({ fence: BigInt(String(fence)), value: String(value) }));
      },
    });
  });

  async function writeRegister(
    level: string,
    { resource, fence, value, rollsBack }: RegisterWrite,
  ): Promise<void> {
    const connection = await database.connect();
    try {
      await connection.begin(level);
      await connection.fence({ fence }, { resource });
      await connection.query(
        `insert into register (resource, fence, value) values ('${resource}', '${fence}', '${value}')`,
      );
      await connection.query(rollsBack ? "rollback" : "commit");
    } catch (error) {
      await connection.query("rollback");
      throw error;
    } finally {
      connection.end();
    }
  }

  test("first writes to many new resources at once, in any order, end by waiting or by being run again", async () => {
    const resources = Array.from({ length: 6 }, (_, index) => `gap ${index}`);
    async function writeAll(order: readonly string[]): Promise<void> {
      const connection = await connect();
      for (;;) {
        await connection.begin("repeatable read");
        try {
          for (const resource of order) await connection.fence({ fence: 7n }, { resource });
          await connection.query("commit");
          return;
        } catch (error) {
          await connection.query("rollback");
          // Nothing else may come of a circle of waiting.
          if ((error as { code?: string }).code !== "STORE_UNAVAILABLE") throw error;
        }
      }
    }
    await Promise.all([resources, resources.toReversed(), resources, resources.toReversed()].map(writeAll));
    const rows = await database.admin("select fence from holdfast_fence where resource like 'gap %'");
    expect(rows.map(({ fence }) => String(fence))).toEqual(resources.map(() => "7"));
  });

  test("a circle of waiting is broken by the server, and told as something to run again", async () => {
    const [first, second] = [await connect(), await connect()];
    for (const connection of [first, second]) await connection.begin();
    await first.fence({ fence: 5n }, { resource: "circle a" });
    await second.fence({ fence: 5n }, { resource: "circle b" });
    const cross = async (connection: SqlConnection, resource: string) => {
      const said = await outcome(connection.fence({ fence: 5n }, { resource }));
      await connection.query("rollback");
      return said;
    };
    const outcomes = await Promise.all([cross(first, "circle b"), cross(second, "circle a")]);
    expect(outcomes.sort()).toEqual(["again", "committed"]);
  });

  test("a mark that is locked for too long may be tried again", async () => {
    const [holder, waiter] = [await connect(), await connect()];
    await holder.begin();
    await holder.fence({ fence: 5n, key: "held" });
    await waiter.query(database.hurry);
    await waiter.begin();
    expect(await outcome(waiter.fence({ fence: 6n, key: "held" }))).toBe("again");
  });

  test("a connection that is lost is an outage", async () => {
    const victim = await connect();
    await victim.begin();
    await victim.cutOff();
    expect(await outcome(victim.fence({ fence: 6n, key: "lost" }))).toBe("again");
  });

  test("a lease names its resource, and a refused write leaves nothing behind", async () => {
    const locks = createLocks();
    onTestFinished(() => locks.close());
    const stale = await locks.mutex("ledger").run(({ fence, key }) => ({ fence, key }));
    const lease = await locks.mutex("ledger").acquire();
    const connection = await connect();
    await connection.begin();
    await connection.fence(lease);
    await connection.query("commit");

    await connection.begin();
    await connection.query("insert into register (resource, value) values ('ledger', 'stale')");
    await expect(connection.fence(stale)).rejects.toMatchObject({
      code: "STALE_FENCE",
      key: "ledger",
      fence: stale.fence,
      mark: lease.fence,
    });
    await connection.query("rollback");
    expect(await database.admin("select * from register where resource = 'ledger'")).toEqual([]);
  });

  test("a lease that is known to be lost is refused before the server is asked", async () => {
    const locks = createLocks();
    const lease = await locks.mutex("ledger").acquire();
    await locks.close();
    const client = { query: () => expect.fail("It was asked.") };
    await expect(database.fence(client as never, lease)).rejects.toMatchObject({ code: "LEASE_LOST" });
  });

  test("fences are compared to the last digit, up to the highest", async () => {
    const connection = await connect();
    await connection.begin();
    await expectLastDigit((fence) => connection.fence({ fence }, { resource: "highest" }));
  });

  test("without a transaction it is refused", async () => {
    const connection = await connect();
    await expect(connection.fence({ fence: 5n, key: "alone" })).rejects.toMatchObject({
      code: "INVALID_ARGUMENT",
      message: expect.stringContaining("inside a transaction"),
    });
    await connection.begin();
    expect(await outcome(connection.fence({ fence: 5n, key: "alone" }))).toBe("committed");
    await connection.query("commit");
  });

  test("a pool is refused, since each of its queries may go to another connection, and so is what is no client", async () => {
    for (const stranger of [...(await database.strangers()), {}, null]) {
      await expect(database.fence(stranger as never, { fence: 5n, key: "pool" })).rejects.toMatchObject({
        code: "INVALID_ARGUMENT",
      });
    }
  });

  test("a fence without a key needs a resource", async () => {
    const connection = await connect();
    await connection.begin();
    await expect(connection.fence({ fence: 5n })).rejects.toMatchObject({ code: "INVALID_ARGUMENT" });
    await expect(connection.fence({ fence: 5n }, { resource: "" })).rejects.toMatchObject({
      code: "INVALID_ARGUMENT",
      message: expect.stringContaining("resource"),
    });
    await expect(connection.fence({ key: "a" } as Fenced)).rejects.toMatchObject({
      code: "INVALID_ARGUMENT",
    });
  });

  test("the table is made once by many at a time, elsewhere too, and a missing one is told", async () => {
    await database.admin(database.makePlace);
    const table = "billing.fences";
    const connection = await connect();
    await connection.begin();
    await expect(connection.fence({ fence: 5n, key: "a" }, { table })).rejects.toMatchObject({
      code: "STORE_FAILURE",
      message: expect.stringContaining(database.migration),
    });
    await connection.query("rollback");
    await Promise.all(Array.from({ length: 8 }, () => database.migrate({ table })));
    await connection.begin();
    await connection.fence({ fence: 5n, key: "ä" }, { table });
    await connection.query("commit");
    const rows = await database.admin("select * from billing.fences");
    expect(rows.map(({ resource, fence }) => [String(resource), String(fence)])).toEqual([["ä", "5"]]);
  });
}

/** Takes ever higher fences for one resource, and sees that the last but one is refused by the highest. */
export async function expectLastDigit(fence: (fence: bigint) => Promise<void>): Promise<void> {
  await fence(MAX_FENCE - 1n);
  await fence(MAX_FENCE);
  await fence(MAX_FENCE);
  await expect(fence(MAX_FENCE - 1n)).rejects.toMatchObject({ code: "STALE_FENCE", mark: MAX_FENCE });
}
