/** The command and the server over TLS, with certificates on both sides. */
import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { canRun } from "../engines/program.ts";
import { run, start, temporaryFolder, until } from "./command.ts";

const hasOpenssl = canRun("TLS (openssl makes the certificates)", () => execFileSync("openssl", ["version"]));

describe.skipIf(!hasOpenssl)("TLS", () => {
  test("is used as the flags and variables say", async () => {
    const folder = temporaryFolder();
    const at = (name: string) => join(folder, name);
    // Each has signed itself, and so is its own authority.
    const certify = (name: string, extension: string) => {
      const key = [
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-keyout",
        at(`${name}.key`),
      ];
      const rest = ["-out", at(`${name}.crt`), "-subj", `/CN=${name}`, "-days", "2", "-addext", extension];
      execFileSync("openssl", ["req", "-x509", ...key, ...rest], { stdio: "pipe" });
    };
    certify("server", "subjectAltName=IP:127.0.0.1");
    certify("client", "extendedKeyUsage=clientAuth");

    const tls = [
      "--tls-cert",
      at("server.crt"),
      "--tls-key",
      at("server.key"),
      "--tls-client-ca",
      at("client.crt"),
    ];
    const serving = start(["serve", "--memory", "--port", "0", ...tls]);
    await until("it listens", () => serving.stdout().includes('"listening"'));
    const url = /"url":"(https:[^"]+)"/.exec(serving.stdout())![1]!;
    const trusting = { HOLDFAST_SERVER: url, HOLDFAST_TLS_CA: at("server.crt") };
    const shown = ["--client-cert", at("client.crt"), "--client-key", at("client.key")];

    expect(await run(["run", "k", ...shown, "--", "echo", "ran"], { env: trusting })).toMatchObject({
      code: 0,
      stdout: "ran\n",
    });
    const store = url.replace("https:", "holdfasts:");
    expect((await run(["ls", "--store", store, "--tls-ca", at("server.crt"), ...shown])).code).toBe(0);
    // Neither a server that is not trusted nor a client without a certificate gets anywhere.
    expect((await run(["ls", "--server", url, ...shown])).code).toBe(69);
    expect((await run(["ls"], { env: trusting })).code).toBe(69);
    const half = await run(["ls", "--server", url, "--client-cert", at("client.crt")]);
    expect(half).toMatchObject({ code: 64, stderr: expect.stringContaining("belong together") });
    const clear = await run(["ls", "--server", url.replace("https:", "http:"), "--tls-ca", at("server.crt")]);
    expect(clear).toMatchObject({
      code: 64,
      stderr: expect.stringContaining("need an encrypted connection"),
    });
    serving.kill("SIGTERM");
    expect((await serving.ended).code).toBe(0);
  });
});
