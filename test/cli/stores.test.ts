/** The command and the server over databases, by nothing but a URL. */
import { beforeAll, describe, test } from "vitest";
import { canRunEtcd, startEtcd } from "../engines/etcd.ts";
import { canRunMariadb, startMariadb } from "../engines/mariadb.ts";
import { canRunPostgres, startPostgres } from "../engines/postgres.ts";
import { atEnd, buildCommand, run, serve } from "./command.ts";

beforeAll(buildCommand, 120_000);

describe.concurrent("by URL", () => {
  test.for([
    { scheme: "postgres:", canRun: canRunPostgres(), start: () => startPostgres() },
    {
      scheme: "mysql:",
      canRun: canRunMariadb(),
      start: () => startMariadb(["--innodb-flush-log-at-trx-commit=1"]),
    },
    { scheme: "etcd:", canRun: canRunEtcd(), start: () => startEtcd() },
  ])(
    "$scheme jobs run under a lock, straight and through a server, and fences grow",
    async ({ scheme, canRun, start }, { skip, expect }) => {
      if (!canRun) skip();
      const engine = await start();
      atEnd(() => engine.stop());
      const url = engine.url.replace(/^\w+:/, scheme);
      const fenceOf = async (...where: string[]) => {
        const job = ["--", "sh", "-c", 'echo "$HOLDFAST_FENCE"'];
        const { code, stdout, stderr } = await run(["run", "job", ...where, ...job]);
        expect(code, stderr).toBe(0);
        return BigInt(stdout);
      };
      const straight = await fenceOf("--store", url);
      const server = await serve(["--store", url, "--port", "0"]);
      expect(await fenceOf("--server", server.url)).toBeGreaterThan(straight);
      server.kill("SIGTERM");
      expect((await server.ended).code).toBe(0);
    },
  );
});
