/**
 * PgBouncer. In transaction mode, as it comes here, a connection of a client is another session of the server in each transaction, so
 * nothing that belongs to a session may be relied upon (LISTEN, advisory locks of the session, SET).
 */
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { Client } from "pg";
import { type Engine, startEngine, unprivileged } from "./engine.ts";
import { canRunPostgres, type PostgresServer } from "./postgres.ts";
import { canRun, findProgram } from "./program.ts";

export interface PgBouncer extends Engine {
  /** For `pg`: the same database and user as the server's own. */
  readonly url: string;
}

export type PoolMode = "session" | "transaction" | "statement";

/** Starts it in front of a server, over `connections` connections to that server. */
export async function startPgBouncer(
  server: PostgresServer,
  connections = 4,
  mode: PoolMode = "transaction",
): Promise<PgBouncer> {
  const engine = await startEngine({
    name: "pgbouncer",
    program: pgBouncerBinary(),
    runAs: unprivileged(),
    prepare(folder, port) {
      const configuration = [
        "[databases]",
        `* = host=127.0.0.1 port=${server.port} user=postgres`,
        "[pgbouncer]",
        "listen_addr = 127.0.0.1",
        `listen_port = ${port}`,
        "unix_socket_dir =",
        "auth_type = any",
        `pool_mode = ${mode}`,
        `default_pool_size = ${connections}`,
        `pidfile = ${pidFile(folder)}`,
        // Drivers name these when they connect, and the sessions are shared.
        "ignore_startup_parameters = extra_float_digits,options",
        "",
      ];
      writeFileSync(join(folder, "pgbouncer.ini"), configuration.join("\n"));
    },
    args: (folder) => [join(folder, "pgbouncer.ini")],
    async isReady({ port, folder }) {
      // It goes on without a port that it could not take, so whoever answers there is asked where its files are.
      const settings = await query<{ key: string; value: string }>(port, "show config");
      return settings.some(({ key, value }) => key === "pidfile" && value === pidFile(folder));
    },
  });
  return Object.assign(engine, { url: `postgres://postgres@127.0.0.1:${engine.port}/postgres` });
}

/** Whether tests against PgBouncer, and so against PostgreSQL, can run here. */
export function canRunPgBouncer(): boolean {
  return canRunPostgres() && canRun("PgBouncer", pgBouncerBinary);
}

function pgBouncerBinary(): string {
  return findProgram({ name: "pgbouncer", packages: ["pgbouncer"], folders: () => ["/usr/sbin"] });
}

function pidFile(folder: string): string {
  return join(folder, "pgbouncer.pid");
}

/** Asks PgBouncer about itself. */
async function query<Row extends object>(port: number, text: string): Promise<readonly Row[]> {
  const client = new Client({ port, host: "127.0.0.1", user: "pgbouncer", database: "pgbouncer" });
  client.on("error", () => {});
  try {
    await client.connect();
    return (await client.query<Row>(text)).rows;
  } finally {
    await client.end();
  }
}
