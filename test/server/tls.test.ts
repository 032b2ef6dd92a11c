import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { request } from "node:https";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { connect } from "node:tls";
import { createLocks } from "holdfast";
import { remoteStore } from "holdfast/remote";
import { pino } from "pino";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { canRun } from "../engines/program.ts";
import { startLockServer } from "./lock-server.ts";
import { dial } from "./raw-http.ts";

const hasOpenssl = canRun("TLS (openssl makes the certificates)", () => execFileSync("openssl", ["version"]));

describe.skipIf(!hasOpenssl)("TLS", () => {
  const folder = mkdtempSync(join(tmpdir(), "holdfast-tls-"));
  const at = (name: string) => join(folder, name);
  const pem = (name: string) => readFileSync(at(name), "utf8");
  const openssl = (...args: string[]) => execFileSync("openssl", args, { cwd: folder, stdio: "pipe" });

  /** A certificate that the authority has signed. */
  function certify(name: string, extensions: string): void {
    writeFileSync(at(`${name}.ext`), extensions);
    openssl(
      "req",
      "-newkey",
      "ec",
      "-pkeyopt",
      "ec_paramgen_curve:prime256v1",
      "-nodes",
      "-keyout",
      `${name}.key`,
      "-out",
      `${name}.csr`,
      "-subj",
      `/CN=${name}`,
    );
    openssl(
      "x509",
      "-req",
      "-in",
      `${name}.csr`,
      "-CA",
      "ca.crt",
      "-CAkey",
      "ca.key",
      "-CAcreateserial",
      "-out",
      `${name}.crt`,
      "-days",
      "2",
      "-extfile",
      `${name}.ext`,
    );
  }

  beforeAll(() => {
    openssl(
      "req",
      "-x509",
      "-newkey",
      "ec",
      "-pkeyopt",
      "ec_paramgen_curve:prime256v1",
      "-nodes",
      "-keyout",
      "ca.key",
      "-out",
      "ca.crt",
      "-subj",
      "/CN=Test authority",
      "-days",
      "2",
    );
    certify("server", "subjectAltName=IP:127.0.0.1,DNS:locks.test");
    certify("client", "extendedKeyUsage=clientAuth");
  });

  afterAll(() => rmSync(folder, { recursive: true }));

  test("sessions and plain HTTP share a port, and a server that is not trusted is not used", async () => {
    const server = await startLockServer({ tls: { cert: pem("server.crt"), key: pem("server.key") } });
    expect(server.url).toMatch(/^https:/);
    const locks = createLocks(remoteStore(server.url, { tls: { ca: pem("ca.crt") } }));
    await locks.mutex("k").run((lease) => expect(lease.held).toBe(true));
    await locks.close();
    const status = await new Promise((resolve, reject) => {
      request(`${server.url}/healthz`, { ca: pem("ca.crt") }, (response) => {
        response.resume();
        resolve([response.statusCode, response.httpVersion]);
      })
        .on("error", reject)
        .end();
    });
    expect(status).toEqual([200, "1.1"]);
    const stranger = remoteStore(server.url);
    await expect(stranger.look({ key: "k", maxClaims: 0 })).rejects.toMatchObject({
      code: "STORE_UNAVAILABLE",
    });
    await stranger.close();
    await server.stop({ graceMs: 0 });
  });

  test("a handshake that never ends keeps no server from ending", async () => {
    const server = await startLockServer({ tls: { cert: pem("server.crt"), key: pem("server.key") } });
    const silent = await dial(server.port);
    const half = await dial(server.port);
    half.write(Buffer.from([0x16, 3, 1, 1, 0, 1]));
    const secure = connect({ port: server.port, ca: pem("ca.crt"), servername: "locks.test" });
    await once(secure, "secureConnect");
    const closed = [silent, half, secure].map((socket) => once(socket.resume(), "close"));
    await server.stop({ graceMs: 0 });
    await Promise.all(closed);
  });

  test("with a clientCa, only clients with its certificate get in", async () => {
    const server = await startLockServer({
      tls: { cert: pem("server.crt"), key: pem("server.key"), clientCa: pem("ca.crt") },
    });
    const known = remoteStore(server.url, {
      tls: { ca: pem("ca.crt"), cert: pem("client.crt"), key: pem("client.key") },
    });
    await known.look({ key: "k", maxClaims: 0 });
    await known.close();
    const unknown = remoteStore(server.url, { tls: { ca: pem("ca.crt") } });
    await expect(unknown.look({ key: "k", maxClaims: 0 })).rejects.toMatchObject({
      code: "STORE_UNAVAILABLE",
    });
    await unknown.close();
    await server.stop({ graceMs: 0 });
  });

  test("the audit log has the subject of a client's certificate", async () => {
    const lines: string[] = [];
    const server = await startLockServer({
      tls: { cert: pem("server.crt"), key: pem("server.key"), clientCa: pem("ca.crt") },
      logger: pino({ level: "info" }, { write: (line) => void lines.push(line) }),
    });
    const tls = { ca: pem("ca.crt"), cert: pem("client.crt"), key: pem("client.key") };
    const session = remoteStore(server.url, { tls });
    await session.release([{ key: "k", id: "i" }]);
    await session.close();
    const options = { ...tls, method: "POST", headers: { "content-type": "application/json" } };
    const [response] = await once(
      request(`${server.url}/holdfast.v1.Locks/ForceRelease`, options).end('{"key": "k", "id": "i"}'),
      "response",
    );
    expect(response.statusCode).toBe(200);
    await server.stop({ graceMs: 0 });
    const audit = lines.map((line) => JSON.parse(line)).filter(({ msg }) => msg === "audit");
    const line = { audit: "force-release", certificate: "CN=client" };
    expect(audit).toMatchObject([line, line]);
  });
});
