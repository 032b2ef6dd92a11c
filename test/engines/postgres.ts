/** Real PostgreSQL servers for tests. `POSTGRES_SERVER` names another `postgres` than the one that is found. */
import { execFile } from "node:child_process";
import { readdirSync, readFileSync, realpathSync } from "node:fs";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import { type Engine, startEngine, unprivileged } from "./engine.ts";
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

export async function startPostgres(options: PostgresOptions = {}): Promise<PostgresServer> {
  const program = postgresBinary();
  const runAs = unprivileged();
  const settings = {
    listen_addresses: "127.0.0.1",
    unix_socket_directories: "",
    fsync: options.fsync === true ? "on" : "off",
    ...options.settings,
  };
  const engine = await startEngine({
    name: "postgres",
    program,
    runAs,
    // Each connection is served by a process of its own.
    hasChildren: true,
    async prepare(folder) {
      // It lies beside the server, but Debian puts neither on the path.
      const initdb = join(dirname(realpathOf(program)), "initdb");
      const how = ["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"];
      await promisify(execFile)(initdb, [...how, "-D", data(folder)], { cwd: folder, ...runAs });
    },
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
