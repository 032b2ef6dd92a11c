/**
 * Real MariaDB servers for tests. `MYSQL_SERVER` names a `mysqld` of MySQL, which Debian does not have, to be used in
 * its place.
 */
import { execFile } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { createConnection } from "mysql2/promise";
import { type Engine, startEngine, unprivileged } from "./engine.ts";
import { canRun, findProgram } from "./program.ts";

export interface MariadbServer extends Engine {
  /** For `mysql2`: the database `holdfast`, as a user with all rights and without a password. */
  readonly url: string;
}

/** Starts a server with these settings, such as `--innodb-flush-log-at-trx-commit=1`; it does not wait for the disk otherwise. */
export async function startMariadb(settings: readonly string[] = []): Promise<MariadbServer> {
  const program = serverBinary();
  const prepareFiles = preparation(program);
  const runAs = unprivileged();
  const engine = await startEngine({
    name: "mariadb",
    program,
    runAs,
    async prepare(folder) {
      writeFileSync(join(folder, "init.sql"), firstStatements);
      const [command, ...args] = prepareFiles(join(folder, "data"));
      await promisify(execFile)(command, args, { cwd: folder, ...runAs });
    },
    args: (folder, port) => [
      "--no-defaults",
      `--datadir=${join(folder, "data")}`,
      `--port=${port}`,
      "--bind-address=127.0.0.1",
      "--skip-name-resolve",
      `--socket=${join(folder, "socket")}`,
      `--pid-file=${join(folder, "pid")}`,
      // A server of MariaDB 11 that starts clears the folder of whatever others have there.
      `--tmpdir=${folder}`,
      `--init-file=${join(folder, "init.sql")}`,
      // A killed process loses nothing with 2, only a power cut does.
      "--innodb-flush-log-at-trx-commit=2",
      // The second protocol of MySQL would want a port of its own. As distributions build it, it also wants a folder for
      // files that statements read and write, which only their packages make.
      ...(isMysql() ? ["--mysqlx=OFF", "--secure-file-priv=NULL"] : []),
      ...settings,
    ],
    async isReady({ port, pid, folder }) {
      // Written once the port is taken.
      if (readFileSync(join(folder, "pid"), "utf8").trim() !== `${pid}`) return false;
      const connection = await createConnection(urlOf(port));
      await connection.end();
      return true;
    },
  });
  return Object.assign(engine, { url: urlOf(engine.port) });
}

/** Whether tests against MariaDB, or the MySQL that was named, can run here. */
export function canRunMariadb(): boolean {
  return canRun(isMysql() ? "MySQL" : "MariaDB", () => preparation(serverBinary()));
}

/** Run at every start. MySQL creates root for the local socket only, and the tests come over TCP. One statement a line. */
const firstStatements = [
  "create database if not exists holdfast;",
  "create user if not exists 'holdfast'@'127.0.0.1';",
  "grant all on *.* to 'holdfast'@'127.0.0.1' with grant option;",
  "",
].join("\n");

/** Whether a MySQL was named, which lacks what MariaDB alone has. */
export function isMysql(): boolean {
  return process.env["MYSQL_SERVER"] !== undefined;
}

function serverBinary(): string {
  const named = process.env["MYSQL_SERVER"];
  if (named !== undefined) return findProgram({ name: named });
  return findProgram({ name: "mariadbd", packages, folders: () => ["/usr/sbin"] });
}

/** Without the package around them, which would start a server at once. The client's has a part of mariadb-install-db. */
const packages = ["mariadb-server-core", "mariadb-client-core"];

/** The command that fills an empty folder for the server. */
function preparation(server: string): (data: string) => readonly [string, ...string[]] {
  if (isMysql()) return (data) => [server, "--no-defaults", "--initialize-insecure", `--datadir=${data}`];
  return (data) => [
    "mariadb-install-db",
    "--no-defaults",
    `--datadir=${data}`,
    "--auth-root-authentication-method=normal",
    "--skip-test-db",
    "--skip-name-resolve",
  ];
}

function urlOf(port: number): string {
  return `mysql://holdfast@127.0.0.1:${port}/holdfast`;
}
