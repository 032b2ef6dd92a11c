/** Real PostgreSQL servers for tests. `POSTGRES_SERVER` names another `postgres` than the one that is found. */
import { execFile } from "node:child_process";
import { readdirSync, readFileSync, realpathSync } from "node:fs";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import { Client } from "pg";
import { type Engine, startEngine, unprivileged, until } from "./engine.ts";
import { canRun, findProgram } from "./program.ts";

export interface PostgresServer extends Engine {
  /** For `pg`: the database `postgres`, as a superuser without a password. */
  readonly url: string;
}

export interface PostgresOptions {
  /** Whether a commit waits for the disk (false). Killing the process loses nothing either way; only a power cut does. */
  readonly fsync?: boolean;
  /** Further settings: `{ max_connections: "20" }`. */
  readonly settings?: Readonly<Record<string, string>>;
}

/** A server that follows another one, and answers what only reads. */
export interface PostgresStandby extends PostgresServer {
  /** Waits until it has what its primary has by now. */
  catchUp(): Promise<void>;
  /** Makes it a primary of its own, which takes writes when this is done. */
  promote(): Promise<void>;
}

export async function startPostgres(options: PostgresOptions = {}): Promise<PostgresServer> {
  const how = ["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"];
  return startServer(options, (folder) => run("initdb", [...how, "-D", data(folder)], folder));
}

/** Starts a standby that streams from a server that runs, or from the port of a proxy in front of it. */
export async function startPostgresStandby(
  primary: PostgresServer,
  { port = primary.port, ...options }: PostgresOptions & { readonly port?: number } = {},
): Promise<PostgresStandby> {
  const how = ["--write-recovery-conf", "--checkpoint=fast", "--no-sync", "--username=postgres"];
  const from = ["--host=127.0.0.1", `--port=${port}`];
  const server = await startServer(options, (folder) =>
    run("pg_basebackup", [...how, ...from, "-D", data(folder)], folder),
  );
  return Object.assign(server, {
    async catchUp() {
      const [{ lsn }] = await ask<{ lsn: string }>(primary, "select pg_current_wal_lsn()::text as lsn");
      const sql = `select pg_last_wal_replay_lsn() >= '${lsn}' as has_it`;
      await until("the standby has caught up", async () => {
        const [{ has_it: hasIt }] = await ask<{ has_it: boolean }>(server, sql);
        return hasIt;
      });
    },
    async promote() {
      await ask(server, "select pg_promote()");
    },
  });
}

async function startServer(
  options: PostgresOptions,
  prepare: (folder: string) => Promise<void>,
): Promise<PostgresServer> {
  const settings = {
    listen_addresses: "127.0.0.1",
    unix_socket_directories: "",
    fsync: options.fsync === true ? "on" : "off",
    ...options.settings,
  };
  const engine = await startEngine({
    name: "postgres",
    program: postgresBinary(),
    runAs: unprivileged(),
    // Each connection is served by a process of its own.
    hasChildren: true,
    prepare,
    args: (folder, port) => [
      ...["-D", data(folder), "-p", `${port}`],
      ...Object.entries(settings).flatMap(([name, value]) => ["-c", `${name}=${value}`]),
    ],
    async isReady({ pid, folder }) {
      // The first line is the process, and the eighth what it does. It is there only if the port could be taken.
      const lines = readFileSync(join(data(folder), "postmaster.pid"), "utf8").split("\n");
      return lines[0] === `${pid}` && lines[7]?.trim() === "ready";
    },
  });
  return Object.assign(engine, { url: `postgres://postgres@127.0.0.1:${engine.port}/postgres` });
}

/** Runs a program that lies beside the server. Debian puts neither on the path. */
async function run(name: string, args: readonly string[], folder: string): Promise<void> {
  const program = join(dirname(realpathOf(postgresBinary())), name);
  await promisify(execFile)(program, args, { cwd: folder, ...unprivileged() });
}

async function ask<Row extends object>({ url }: PostgresServer, sql: string): Promise<readonly [Row]> {
  const client = new Client({ connectionString: url });
  client.on("error", () => {});
  await client.connect();
  try {
    return (await client.query<Row>(sql)).rows as unknown as readonly [Row];
  } finally {
    await client.end();
  }
}

/** Whether tests against PostgreSQL can run here. */
export function canRunPostgres(): boolean {
  return canRun("PostgreSQL", postgresBinary);
}

function postgresBinary(): string {
  const named = process.env["POSTGRES_SERVER"];
  if (named !== undefined) return findProgram({ name: named });
  return findProgram({ name: "postgres", packages: ["postgresql"], folders: debianFolders });
}

/** Debian keeps each major version in a folder of its own. The newest comes first. */
function debianFolders(): readonly string[] {
  const parent = "/usr/lib/postgresql";
  try {
    const versions = readdirSync(parent).sort((a, b) => Number(b) - Number(a));
    return versions.map((version) => join(parent, version, "bin"));
  } catch {
    return [];
  }
}

function realpathOf(program: string): string {
  if (program.includes("/")) return realpathSync(program);
  for (const folder of (process.env["PATH"] ?? "").split(":")) {
    try {
      return realpathSync(join(folder, program));
    } catch {
      // It is further along the path.
    }
  }
  throw new Error(`${program} is not on the path.`);
}

function data(folder: string): string {
  return join(folder, "data");
}
