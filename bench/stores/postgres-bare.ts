/**
 * What the store could come to if it took no time itself: as many rows are updated, in calls as large, by a client that decides
 * nothing, makes nothing up and writes no more than a version and a record. What takes rows is flushed to the disk before it is
 * answered, and what gives them back is not, as with the store.
 */
import { migratePostgres } from "holdfast/postgres";
import { Client } from "pg";

/** As the store has it: one half is worked on by the server while this process sends the other. */
const CONNECTIONS = 2;
const VERSIONS = ["00000000-0000-0000-0000-000000000000", "00000000-0000-0000-0000-000000000001"] as const;
/** What the store writes for a lock that is free, and for one that is held. */
const RECORDS = [
  '{"v":1,"fence":"1767225600000000","held":[],"waiting":[]}',
  '{"v":1,"fence":"1767225600000000","held":[{"id":"AAAAAAAAAAAAAAAAAAAAAA","ttlMs":30000,"expiresAtMs":1767225630000,' +
    '"owner":"AAAAAAAAAAAAAAAAAAAAAA","fence":"1767225600000000","acquiredAtMs":1767225600000}],"waiting":[]}',
] as const;

const update = `update bare as lock set version = $3::uuid, record = asked.record
from (
  select unnest(string_to_array($1 collate "C", E'\\n')) as key, unnest(string_to_array($2, E'\\n')) as record
) as asked
where lock.key = asked.key and lock.version = $4::uuid`;

/** As the store has it for releases, at the end of the transaction. */
const laxUpdate = `with made as (${update} returning 1)
select count(*)::int as made, set_config('synchronous_commit', 'off', true) from made`;

export interface BareUpdates {
  /** What it takes to change the rows of so many keys twice, in nanoseconds for each key. */
  cycleFor(roundMs: number, callers: number): Promise<number>;
  close(): Promise<void>;
}

export async function openBareUpdates(url: string): Promise<BareUpdates> {
  // The plan that visits only the rows that are asked for, made once.
  const settings = [
    "enable_hashjoin=off",
    "enable_mergejoin=off",
    "enable_seqscan=off",
    "plan_cache_mode=force_generic_plan",
  ];
  const options = settings.map((setting) => `-c ${setting}`).join(" ");
  const clients = Array.from({ length: CONNECTIONS }, () => new Client({ connectionString: url, options }));
  const [first] = clients;
  if (first === undefined) throw new Error("There is no connection.");
  await Promise.all(clients.map((client) => client.connect()));
  await migratePostgres(first, { table: "bare" });

  async function prepare(callers: number): Promise<readonly Part[]> {
    const keys = Array.from({ length: callers }, (_, caller) => `bench:${caller}`);
    const insert = "insert into bare select unnest($1::text[]), $2, '', false, 0 on conflict do nothing";
    await first?.query(insert, [keys, VERSIONS[0]]);
    return clients.map((client, nth) => {
      const own = keys.filter((_, caller) => caller % CONNECTIONS === nth);
      return { client, size: own.length, steps: [takeStep(valuesOf(own, 1)), giveStep(valuesOf(own, 0))] };
    });
  }

  return {
    async cycleFor(roundMs, callers) {
      const parts = await prepare(callers);
      const startMs = performance.now();
      let cycles = 0;
      await Promise.all(
        parts.map(async ({ client, size, steps }) => {
          do {
            for (const step of steps) {
              const made = await step(client);
              if (made !== size) throw new Error(`${made} of ${size} rows were updated.`);
            }
            cycles += size;
          } while (performance.now() - startMs < roundMs);
        }),
      );
      return ((performance.now() - startMs) * 1e6) / cycles;
    },
    async close() {
      await Promise.all(clients.map((client) => client.end()));
    },
  };
}

interface Part {
  readonly client: Client;
  readonly size: number;
  /** One that takes all of its keys, and one that gives them back. They tell how many rows were updated. */
  readonly steps: readonly Step[];
}

type Step = (client: Client) => Promise<number | null | undefined>;

function takeStep(values: string[]): Step {
  return async (client) => (await client.query({ name: "take", text: update, values })).rowCount;
}

function giveStep(values: string[]): Step {
  return async (client) => {
    const { rows } = await client.query<{ made: number }>({ name: "give", text: laxUpdate, values });
    return rows[0]?.made;
  };
}

function valuesOf(keys: readonly string[], to: number): string[] {
  const records = keys.map(() => RECORDS[to]);
  return [keys.join("\n"), records.join("\n"), VERSIONS[to] ?? "", VERSIONS[1 - to] ?? ""];
}
