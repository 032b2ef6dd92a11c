/** Stores by URL, on the engines themselves. */
import { execFile, execFileSync } from "node:child_process";
import { once } from "node:events";
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { type AddressInfo, connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Duplex } from "node:stream";
import { createServer as createTlsServer } from "node:tls";
import { inspect, promisify } from "node:util";
import { createLocks, memoryStore } from "holdfast";
import { openStore, storeSchemes } from "holdfast/open";
import { hashToken } from "holdfast/server";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import { until } from "../engines/engine.ts";
import { canRunEtcd, startEtcd } from "../engines/etcd.ts";
import { canRunMariadb, startMariadb } from "../engines/mariadb.ts";
import { canRunMongodb, startMongodb } from "../engines/mongodb.ts";
import { canRunPostgres, startPostgres } from "../engines/postgres.ts";
import { canRun } from "../engines/program.ts";
import { canRunRedis, freePort, startRedis } from "../engines/redis.ts";
import { startLockServer } from "../server/lock-server.ts";
import { demandLogin, user } from "../stores/etcd/users.ts";
import { failure } from "../stores/failure.ts";
import { expectToLock } from "./expect-to-lock.ts";

/** An engine that ends with the test. */
async function started<T extends { stop(): Promise<void> }>(starting: Promise<T>): Promise<T> {
  const engine = await starting;
  onTestFinished(() => engine.stop());
  return engine;
}

interface KeyPair {
  readonly certificate: string;
  readonly key: string;
}

/** The files of a certificate for this machine, until the test is over. */
function selfSigned(): KeyPair {
  const folder = mkdtempSync(join(tmpdir(), "holdfast-open-tls-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const [certificate, key] = [join(folder, "server.crt"), join(folder, "server.key")];
  const curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
  const files = ["-keyout", key, "-out", certificate, "-subj", "/CN=server", "-days", "2"];
  const named = ["-addext", "subjectAltName=IP:127.0.0.1"];
  execFileSync("openssl", ["req", "-x509", ...curve, ...files, ...named], { stdio: "pipe" });
  return { certificate, key };
}

/** Takes off the encryption in front of a server that has none, as many proxies do. Resolves to its port. */
async function encrypted(plainPort: number, { certificate, key }: KeyPair): Promise<number> {
  const secrets = { cert: readFileSync(certificate), key: readFileSync(key), ALPNProtocols: ["h2"] };
  const open = new Set<Duplex>();
  const proxy = createTlsServer(secrets, (client) => {
    const server = connect(plainPort, "127.0.0.1");
    for (const socket of [client, server]) open.add(socket.on("error", () => {}));
    client.pipe(server).pipe(client);
  });
  await once(proxy.listen(0, "127.0.0.1"), "listening");
  onTestFinished(() => {
    for (const socket of open) socket.destroy();
    proxy.close();
  });
  return (proxy.address() as AddressInfo).port;
}

const hasMongodb = await canRunMongodb();
const hasOpenssl = canRun("TLS (openssl makes the certificates)", () => execFileSync("openssl", ["version"]));

describe("openStore", () => {
  test("memory:", () => expectToLock("memory:", "memory"));

  test.skipIf(!canRunRedis())("redis:", async () => {
    const { port } = await started(startRedis());
    await expectToLock(`redis://127.0.0.1:${port}`, "redis");
  });

  test.skipIf(!canRunRedis() || !hasOpenssl)("rediss:, where the server is trusted", async () => {
    const { certificate, key } = selfSigned();
    const port = `${await freePort()}`;
    const secured = ["--tls-port", port, "--tls-cert-file", certificate, "--tls-key-file", key];
    await started(startRedis([...secured, "--tls-ca-cert-file", certificate, "--tls-auth-clients", "no"]));

    const url = `rediss://127.0.0.1:${port}`;
    const locks = createLocks(await openStore(url), { requestTimeoutMs: 500 });
    await expect(locks.mutex("opened").tryAcquire()).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
    await locks.close();
    // Nobody has signed the certificate but itself, so whoever is to trust it has to trust all.
    vi.stubEnv("NODE_TLS_REJECT_UNAUTHORIZED", "0");
    onTestFinished(() => void vi.unstubAllEnvs());
    await expectToLock(url, "redis");
  });

  test.skipIf(!canRunRedis()).for([
    ["5", () => import("ioredis")],
    ["6", () => import("ioredis6")],
  ] as const)(
    "redis: with a database that the server does not have, through ioredis %s",
    async ([, load]) => {
      const installed = await load();
      vi.doMock("ioredis", () => installed);
      onTestFinished(() => void vi.doUnmock("ioredis"));
      const { port, command } = await started(startRedis());
      const locks = createLocks(await openStore(`redis://127.0.0.1:${port}/99`));
      for (const _ of ["while it connects", "when it has been refused"]) {
        const refused = await failure(locks.mutex("opened").tryAcquire());
        expect(refused).toMatchObject({ code: "STORE_FAILURE", cause: { name: "ReplyError" } });
        expect(refused.message).toContain('database "99"');
      }
      await locks.close();
      expect(await command("DBSIZE")).toBe(0);
      await expectToLock(`redis://127.0.0.1:${port}/15`, "redis");
      expect(await command("DBSIZE")).toBe(0);
    },
  );

  test.skipIf(!canRunRedis())(
    "redis: is used when the server is up, and lost again when it is not",
    async () => {
      const server = await started(startRedis());
      await server.kill();
      const locks = createLocks(await openStore(`redis://127.0.0.1:${server.port}`), {
        requestTimeoutMs: 300,
      });
      onTestFinished(() => locks.close());
      expect(await failure(locks.inspect("opened"))).toMatchObject({
        code: "STORE_UNAVAILABLE",
        message: expect.stringContaining(`127.0.0.1:${server.port} (ECONNREFUSED)`),
      });
      await server.restart();
      await until("the store answers", async () => {
        return locks.inspect("opened").then(Boolean, () => false);
      });
      await server.kill();
      await until("the store says that nobody is there", async () => {
        const { message } = await failure(locks.inspect("opened"));
        return message.includes("(ECONNREFUSED)");
      });
    },
  );

  test.each([
    ["redis://127.0.0.1:1", "127.0.0.1:1", "ECONNREFUSED"],
    ["redis://nowhere.invalid", "nowhere.invalid:6379", "ENOTFOUND"],
    // The client does not tell of a cluster why there is no connection.
    ["redis://127.0.0.1:1,127.0.0.1:2", "127.0.0.1:1, 127.0.0.1:2", ""],
    ["redis://nowhere.invalid,127.0.0.1:1", "nowhere.invalid:6379, 127.0.0.1:1", "ENOTFOUND"],
  ])("%s, where nobody is, is an outage that says where and why", async (url, where, code) => {
    const locks = createLocks(await openStore(url));
    const outage = await failure(locks.inspect("opened"));
    await locks.close();
    expect(outage).toMatchObject({ code: "STORE_UNAVAILABLE", message: expect.stringContaining(where) });
    // A resolver that cannot ask anybody says EAI_AGAIN.
    expect(outage.message.replace("EAI_AGAIN", "ENOTFOUND")).toContain(code);
  });

  test.skipIf(!canRunRedis())("redis: with a wrong password, which is not shown", async () => {
    const { port, command } = await started(startRedis());
    await command("CONFIG", "SET", "requirepass", "right");
    for (const url of [`redis://:s3cret@127.0.0.1:${port}`, `redis://127.0.0.1:${port}`]) {
      const locks = createLocks(await openStore(url));
      const refused = await failure(locks.mutex("opened").tryAcquire());
      expect(refused).toMatchObject({ code: "UNAUTHORIZED" });
      expect(inspect(refused, { depth: 9 })).not.toContain("s3cret");
      await locks.close();
    }
  });

  test.skipIf(!canRunRedis())(
    "redis: with several hosts, none of a cluster, says what the server says",
    async () => {
      const { port } = await started(startRedis());
      const locks = createLocks(await openStore(`redis://127.0.0.1:${port},127.0.0.1:${port}`));
      const refused = await failure(locks.mutex("opened").tryAcquire());
      expect(refused).toMatchObject({ code: "STORE_FAILURE", cause: { name: "ReplyError" } });
      await locks.close();
    },
  );

  test.skipIf(!canRunPostgres())("postgres: and postgresql:", { timeout: 60_000 }, async () => {
    const { url } = await started(startPostgres());
    await expectToLock(url, "postgres");
    await expectToLock(url.replace(/^postgres:/, "postgresql:"), "postgres");
  });

  test.skipIf(!canRunMariadb())("mysql: and mariadb:", { timeout: 60_000 }, async () => {
    const { url } = await started(startMariadb(["--innodb-flush-log-at-trx-commit=1"]));
    await expectToLock(url, "mysql");
    await expectToLock(url.replace(/^mysql:/, "mariadb:"), "mysql");
  });

  test.skipIf(!hasMongodb)("mongodb:", { timeout: 60_000 }, async () => {
    const { url } = await started(startMongodb());
    // The stand-in for MongoDB is too old for the newest driver.
    const installed = await import("mongodb6");
    vi.doMock("mongodb", () => installed);
    onTestFinished(() => void vi.doUnmock("mongodb"));
    const named = new URL(url);
    named.pathname = "/locks";
    await expectToLock(named.href, "mongodb");
  });

  test.skipIf(!canRunEtcd())("etcd:", { timeout: 60_000 }, async () => {
    const { url } = await started(startEtcd());
    await expectToLock(url.replace(/^http:/, "etcd:"), "etcd");
  });

  test.skipIf(!canRunEtcd())(
    "etcd: with a user, whose password is not shown",
    { timeout: 60_000 },
    async () => {
      const { url, port } = await started(startEtcd());
      await demandLogin(url);
      const { username, password } = user;
      await expectToLock(`etcd://${username}:${password}@127.0.0.1:${port}`, "etcd");
      for (const login of ["", `${username}:s3cret@`]) {
        const locks = createLocks(await openStore(`etcd://${login}127.0.0.1:${port}`));
        const refused = await failure(locks.mutex("opened").tryAcquire());
        expect(refused).toMatchObject({ code: "UNAUTHORIZED" });
        expect(inspect(refused, { depth: 9 })).not.toContain("s3cret");
        await locks.close();
      }
    },
  );

  test.skipIf(!canRunEtcd() || !hasOpenssl)(
    "etcds: with a user, where the server is trusted",
    { timeout: 60_000 },
    async () => {
      const { url, port } = await started(startEtcd());
      await demandLogin(url);
      const secured = selfSigned();
      const { username, password } = user;
      const store = `etcds://${username}:${password}@127.0.0.1:${await encrypted(port, secured)}`;
      const locks = createLocks(await openStore(store), { requestTimeoutMs: 500 });
      await expect(locks.mutex("opened").tryAcquire()).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
      await locks.close();
      // gRPC reads its trusted certificates when it is loaded, so this takes another process.
      const program = `
        import { createLocks } from "${new URL("../../src/index.ts", import.meta.url)}";
        import { openStore } from "${new URL("../../src/open/index.ts", import.meta.url)}";
        const locks = createLocks(await openStore(process.argv[1]));
        console.log(await locks.mutex("opened").run((lease) => lease.held));
        await locks.close();`;
      const args = ["--import", "tsx", "--input-type=module", "-e", program, store];
      const env = { ...process.env, GRPC_DEFAULT_SSL_ROOTS_FILE_PATH: secured.certificate };
      const { stdout } = await promisify(execFile)(process.execPath, args, { env });
      expect(stdout).toBe("true\n");
    },
  );

  test("holdfast:, the store of a lock server", async () => {
    const store = memoryStore();
    const tokens = [
      {
        name: "all",
        sha256: hashToken("s3cret"),
        grants: [{ prefix: "", verbs: ["acquire", "read"] as const }],
      },
    ];
    const server = await started(startLockServer({ store, tokens }));
    const url = server.url.replace("http:", "holdfast:");
    await expect(openStore(url)).rejects.toMatchObject({ code: "UNAUTHORIZED" });
    // Another server of the list is away.
    const opened = await openStore(`${url},127.0.0.1:1`, { token: "s3cret" });
    expect(opened).toMatchObject({ name: "remote", durability: "ephemeral" });
    const locks = createLocks(opened);
    expect(await locks.mutex("opened").run((lease) => lease.held)).toBe(true);
    await locks.close();
    await expect(openStore(url, { token: "s3cret", tls: {} })).rejects.toThrow("Write holdfasts://");
  });

  test("holdfast:, where there is no server", async () => {
    await expect(openStore("holdfast://127.0.0.1:1")).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
  });

  test.each([
    ["localhost", "does not begin with a scheme"],
    ["http://localhost", 'begins with "http:"'],
    ["memory:x", 'just "memory:"'],
    ["file:", "must name a folder"],
    ["redis:///0", "must name a host"],
    ["etcd://one:2379,", "must name a host"],
    ["file:./100%", "Write %25"],
    ["file://relative/dir", "Write file:./relative/folder or file:///absolute/folder"],
    ["redis://one,two/1", "only database 0"],
    ["redis://h:abc", 'port from 1 to 65535 after the host "h".'],
    ["redis://u:s3cret@h:70000", 'port from 1 to 65535 after the host "h", not 70000'],
    ["redis://u:s3cret@[::1]:0", 'port from 1 to 65535 after the host "[::1]", not 0'],
    ["redis://u:s3c/ret@h", '"/", "?" or "#" in its username or password'],
    ["redis://:s3cret", 'port from 1 to 65535 after the host "".'],
    ["postgres://u:s3cret@h:99999/db", 'port from 1 to 65535 after the host "h", not 99999'],
    ["postgres://u:s3cret@h/db?sslrootcert=/nowhere", "not valid for the package pg"],
    ["mysql://u:s3cret@h:99999/db", 'port from 1 to 65535 after the host "h", not 99999'],
    ["mariadb://u:s3cret@a b/db", "not valid for the package mysql2"],
    ["mongodb://u:s3cret@one,two:99999/db", 'port from 1 to 65535 after the host "two", not 99999'],
    ["mongodb://u:s3cret@h/?nonsense=1", "option nonsense is not supported"],
    ["mongodb://u:s3%ret@h/db", "not valid for the package mongodb"],
    ["mongodb+srv://u:s3cret@h.example:27017/db", "not valid for the package mongodb"],
    ["mongodb://", "must name a host"],
    ["mongodb:localhost", "must name a host"],
    ["etcd://one,two:99999", 'port from 1 to 65535 after the host "two", not 99999'],
    ["etcd3://h", 'begins with "etcd3:"'],
    ["constructor:", 'begins with "constructor:"'],
    ["holdfast://secret@locks:7420", "must not contain the token"],
    ["holdfast://locks/path", "only the hosts"],
    ["holdfast://", "must name a host"],
    ["http://u:s3cret@localhost", 'begins with "http:"'],
  ])("refuses %s, says why, and shows no password", async (url, why) => {
    const refused = await failure(openStore(url));
    expect(refused).toMatchObject({ code: "INVALID_ARGUMENT", message: expect.stringContaining(why) });
    expect(inspect(refused, { depth: 9, showHidden: true })).not.toMatch(/s3c|ret@/);
  });

  test("takes a scheme in any letters, and no option that is none", async () => {
    expect(await openStore("Memory:")).toMatchObject({ name: "memory" });
    expect(await failure(openStore("memory:", { tokn: "s3cret" } as never))).toMatchObject({
      code: "INVALID_ARGUMENT",
      message: expect.stringMatching(/^tokn is not an option of openStore.*token, tls/),
    });
  });

  test("says which package is missing", { timeout: 60_000 }, () => {
    // The built package, in a folder with nothing but what every installation of it has.
    const folder = mkdtempSync(join(tmpdir(), "holdfast-alone-"));
    onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
    cpSync(new URL("../../dist", import.meta.url), join(folder, "dist"), { recursive: true });
    const croner = new URL("../../node_modules/croner", import.meta.url);
    cpSync(croner, join(folder, "node_modules/croner"), { recursive: true });
    writeFileSync(join(folder, "package.json"), '{ "type": "module" }');
    const program = `
      import { openStore } from "./dist/open/index.js";
      for (const scheme of ["redis", "postgres", "mysql", "mongodb", "etcd"]) {
        await openStore(scheme + "://localhost").catch((error) => console.log(error.code, error.message));
      }
      // This one is loaded by a thread, at first use.
      const store = await openStore("file:" + process.cwd() + "/locks");
      await store.look({ key: "k", maxClaims: 0 }).catch((error) => console.log(error.code, error.message));
      await store.close();`;
    const said = execFileSync(process.execPath, ["--input-type=module", "-e", program], {
      cwd: folder,
      encoding: "utf8",
    });
    const packages = [...said.matchAll(/^UNSUPPORTED .*: npm install (\w+)/gm)].map(([, name]) => name);
    expect(packages).toEqual(["ioredis", "pg", "mysql2", "mongodb", "etcd3", "lmdb"]);
  });

  test("names the schemes there are", () => {
    const asked = [
      "memory:",
      "file:",
      "redis:",
      "rediss:",
      "postgres:",
      "mysql:",
      "mongodb:",
      "etcd:",
      "holdfast:",
    ];
    expect(storeSchemes).toEqual(expect.arrayContaining(asked));
  });
});
