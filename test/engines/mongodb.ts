/**
 * Real servers that speak MongoDB's protocol: `mongod` where it is on the path or named by `MONGODB_SERVER`, as a
 * replica set of one member, and otherwise mongo-java-server, because MongoDB itself is not in Debian.
 *
 * Their features that matter to a lock store, as measured:
 *
 * |                                                     | MongoDB          | mongo-java-server 1.47 | FerretDB 1.24, SQLite |
 * |-----------------------------------------------------|------------------|------------------------|-----------------------|
 * | update, replace, findOneAndUpdate with a version    | atomic           | atomic                 | NOT atomic            |
 * | insert of an _id that is there; upsert that misses  | error 11000      | error 11000            | error 11000           |
 * | unordered bulkWrite with a version in each filter   | yes              | yes                    | yes                   |
 * | its insertedCount when one insert is a duplicate    | those inserted   | counts that one too    | those inserted        |
 * | update by an aggregation pipeline, `$$NOW` in it    | yes              | no                     | no                    |
 * | `$$NOW` in an aggregation, `$expr` in a filter      | yes              | yes                    | no                    |
 * | `$currentDate`                                      | yes              | yes                    | yes                   |
 * | `hello` with `localTime`                            | yes              | `isMaster` only        | yes                   |
 * | change streams                                      | on a replica set | no                     | no                    |
 * | transactions                                        | on a replica set | no                     | no                    |
 * | keeps what it confirmed when the process is killed  | journaled writes | not the last second    | not looked at         |
 * | driver 7 of Node                                    | from 4.4 on      | no: driver 6           | yes                   |
 *
 * The column of MongoDB was measured with 4.2, 4.4, 5.0 and 6.0, or is from its documentation. FerretDB is the more complete
 * stand-in, but reads and writes an update in two steps: of eight clients that set version 1 where version is 0, several
 * succeeded in 199 of 200 rounds. With mongo-java-server one succeeded in each of 200 rounds. It writes to the disk once a
 * second, so a crash cannot show that a lock survives.
 */
import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { MongoClient } from "mongodb6";
import { type Engine, startEngine, until } from "./engine.ts";
import { cannotRun, findProgram, install } from "./program.ts";

export interface MongodbServer extends Engine {
  /** For `mongodb`: straight to this server. */
  readonly url: string;
  /** Whether it is MongoDB itself, with change streams, transactions and pipelines in updates. */
  readonly isMongod: boolean;
  /** Which protocol it speaks at best: 8 is MongoDB 4.2, and 9 is 4.4. */
  readonly wireVersion: number;
}

export function startMongodb(): Promise<MongodbServer> {
  return startServer(async (command, { ismaster }, isMongod) => {
    return !isMongod || ismaster === true || (await initiate(command));
  });
}

/** MongoDB itself, as a replica set of one that wants to know who asks. */
export interface GuardedMongodb extends MongodbServer {
  /** For `mongodb`: straight to this server, with a login. */
  urlFor(user: Login): string;
  /** A user with all rights. */
  readonly root: Login;
}

export async function startGuardedMongodb(): Promise<GuardedMongodb> {
  const root = { username: "root", password: "secret" };
  const { program, args } = await findServer();
  const keyFile = (folder: string) => join(folder, "key");
  let wireVersion = 0;
  const engine = await startEngine({
    name: "mongodb",
    program,
    // Members of a replica set with users know each other by it. MongoDB reads it only where nobody else can.
    prepare: (folder) => writeFileSync(keyFile(folder), "holdfast", { mode: 0o600 }),
    args: (folder, port) => [...args(folder, port), "--auth", "--keyFile", keyFile(folder)],
    async isReady({ port, pid }) {
      // Until there is a user, whoever is on the same machine may make the first.
      await admin(port, async (command) => {
        const { ismaster, maxWireVersion } = await command({ isMaster: 1 });
        wireVersion = Number(maxWireVersion);
        const { username, password } = root;
        if (ismaster !== true) await initiate(command);
        else await command({ createUser: username, pwd: password, roles: ["root"] });
      }).catch(() => {});
      return admin(
        port,
        async (command) => Number((await command({ serverStatus: 1 }))["pid"]) === pid,
        root,
      );
    },
  });
  return Object.assign(engine, {
    ...{ url: urlOf(engine.port), isMongod: true, wireVersion, root },
    urlFor: (user: Login) => urlOf(engine.port, user),
  });
}

/** Three members of MongoDB itself, which elect another primary two seconds after they hear nothing of the last. */
export interface MongodbReplicaSet {
  readonly members: readonly MongodbServer[];
  /** For `mongodb`: to whoever is primary. */
  readonly url: string;
  /** The member that all writes go to, once there is one. */
  primary(): Promise<MongodbServer>;
  stop(): Promise<void>;
}

export async function startMongodbReplicaSet(): Promise<MongodbReplicaSet> {
  const started = await Promise.allSettled([1, 2, 3].map(() => startServer(async () => true)));
  const members = started.flatMap((each) => (each.status === "fulfilled" ? [each.value] : []));
  const hosts = members.map(({ port }) => `127.0.0.1:${port}`);
  const set: MongodbReplicaSet = {
    members,
    url: `mongodb://${hosts.join()}/?replicaSet=${SET_NAME}`,
    async primary() {
      let primary: MongodbServer | undefined;
      await until("there is a primary", async () => {
        const claims = await Promise.all(members.map(isPrimary));
        primary = members[claims.indexOf(true)];
        // One that was deposed may not know it yet.
        return claims.filter(Boolean).length === 1;
      });
      return primary!;
    },
    async stop() {
      await Promise.all(members.map((member) => member.stop()));
    },
  };
  try {
    if (members.length !== started.length) throw new Error("Not all members of the replica set started.");
    await admin(members[0]!.port, (command) =>
      command({
        replSetInitiate: {
          _id: SET_NAME,
          members: hosts.map((host, index) => ({ _id: index, host })),
          // While a paused primary keeps a secondary from telling how far it is, only heartbeats tell, which usually come every 2 s:
          // too seldom for writes that are given up after that.
          settings: { electionTimeoutMillis: 2_000, heartbeatIntervalMillis: 200 },
        },
      }),
    );
    await set.primary();
    return set;
  } catch (error) {
    await set.stop();
    throw error;
  }
}

function isPrimary({ port }: MongodbServer): Promise<boolean> {
  const asked = admin(port, async (command) => (await command({ isMaster: 1 }))["ismaster"] === true);
  return asked.catch(() => false);
}

type Greeting = Readonly<Record<string, unknown>>;

/** Starts a server, which is ready when it answers and this holds. */
async function startServer(
  isServing: (command: Command, greeting: Greeting, isMongod: boolean) => Promise<boolean>,
): Promise<MongodbServer> {
  const { program, isMongod, args } = await findServer();
  let wireVersion = 0;
  const engine = await startEngine({
    name: "mongodb",
    program,
    args,
    isReady: ({ port, pid }) =>
      admin(port, async (command) => {
        if (Number((await command({ serverStatus: 1 }))["pid"]) !== pid) return false;
        // By its old name: MongoDB before 4.4.2 has no `hello`.
        const greeting = await command({ isMaster: 1 });
        wireVersion = Number(greeting["maxWireVersion"]);
        return isServing(command, greeting, isMongod);
      }),
  });
  return Object.assign(engine, { url: urlOf(engine.port), isMongod, wireVersion });
}

/** Whether tests against a server with MongoDB's protocol can run here. The first time it may have to be fetched. */
export async function canRunMongodb(): Promise<boolean> {
  try {
    await findServer();
    return true;
  } catch (error) {
    return cannotRun("MongoDB", error as Error);
  }
}

/** Whether tests can run that take MongoDB itself. No registry has it, so a run without is none that has failed; but it says so. */
export async function canRunMongod(tests: string): Promise<boolean> {
  if (!(await canRunMongodb())) return false;
  const { isMongod } = await findServer();
  if (!isMongod)
    console.warn(`\n*** SKIPPED: ${tests}. Install mongod, or name one in MONGODB_SERVER. ***\n`);
  return isMongod;
}

const SET_NAME = "holdfast";

interface Found {
  readonly program: string;
  readonly isMongod: boolean;
  args(folder: string, port: number): readonly string[];
}

let found: Promise<Found> | undefined;

function findServer(): Promise<Found> {
  found ??= findMongod() ?? findJavaServer();
  return found;
}

function findMongod(): Promise<Found> | undefined {
  const named = process.env["MONGODB_SERVER"];
  try {
    const program = findProgram({ name: named ?? "mongod" });
    const args = (folder: string, port: number) => [
      ...["--replSet", SET_NAME, "--bind_ip", "127.0.0.1", "--port", `${port}`, "--dbpath", folder],
    ];
    return Promise.resolve({ program, isMongod: true, args });
  } catch (error) {
    if (named !== undefined) return Promise.reject(error);
    return undefined;
  }
}

const source = fileURLToPath(new URL("mongo-java-server", import.meta.url));

/** Fetches and compiles in a folder of its own, which gets its name when all is there. The first argument is that name. */
const fetchScript = `
set -e
[ -d "$1" ] && exit 0
work=$(mktemp -d "$1.XXXXXX")
trap 'rm -rf "$work"' EXIT
mvn -q -B -f "$2/pom.xml" dependency:copy-dependencies -DoutputDirectory="$work"
javac -cp "$work/*" -d "$work" "$2/server.java"
mv "$work" "$1"`;

async function findJavaServer(): Promise<Found> {
  const files = ["pom.xml", "server.java"].map((name) => readFileSync(join(source, name), "utf8"));
  const version = /<version>([\d.]+\.\d+)</.exec(files[0]!)?.[1];
  const hash = createHash("sha256").update(files.join()).digest("hex").slice(0, 8);
  const cache = join(process.env["XDG_CACHE_HOME"] ?? join(homedir(), ".cache"), "holdfast");
  const folder = join(cache, `mongo-java-server-${version}-${hash}`);
  const java = findProgram({ name: "java", packages: ["default-jdk-headless"] });
  if (!existsSync(folder)) {
    mkdirSync(cache, { recursive: true });
    await fetchJavaServer(cache, folder);
  }
  console.log(`Tests run against mongo-java-server: ${version}`);
  // The server is small and lives for seconds: starting fast matters more than running fast.
  const options = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m", "-cp", `${folder}:${folder}/*`];
  const args = (data: string, port: number) => [...options, "Server", `${port}`, join(data, "data")];
  return { program: java, isMongod: false, args };
}

/** Waits without blocking: it takes many seconds, and a test runner that hears nothing from its worker gives it up. */
async function fetchJavaServer(cache: string, folder: string): Promise<void> {
  const run = promisify(execFile);
  const exists = (name: string) => run(name, ["-version"]).then(Boolean, () => false);
  if (!((await exists("mvn")) && (await exists("javac")))) install(["default-jdk-headless", "maven"]);
  // Several test files may come here at the same time, and Maven does not share its own cache: one after the other.
  const lock = process.platform === "linux" ? ["flock", cache] : [];
  const [command = "sh", ...args] = [...lock, "sh", "-c", fetchScript, "sh", folder, source];
  try {
    await run(command, args);
  } catch (error) {
    throw new Error("mongo-java-server could not be fetched. It takes Java 17, Maven and a network.", {
      cause: error,
    });
  }
}

type Command = (command: Readonly<Record<string, unknown>>) => Promise<Readonly<Record<string, unknown>>>;

/** Makes a lone server a replica set of one. It is ready some moments later. */
async function initiate(command: Command): Promise<false> {
  await command({ replSetInitiate: {} });
  return false;
}

export interface Login {
  readonly username: string;
  readonly password: string;
}

async function admin<T>(port: number, ask: (command: Command) => Promise<T>, user?: Login): Promise<T> {
  const url = urlOf(port, user);
  const client = new MongoClient(url, { serverSelectionTimeoutMS: 1_000, socketTimeoutMS: 5_000 });
  try {
    return await ask((command) => client.db("admin").command(command));
  } finally {
    await client.close();
  }
}

/** Users are in the database `admin`, where the driver looks for them. */
function urlOf(port: number, user?: Login): string {
  const login = user === undefined ? "" : `${user.username}:${user.password}@`;
  return `mongodb://${login}127.0.0.1:${port}/?directConnection=true`;
}
