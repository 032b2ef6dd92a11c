/** What a peer can make the server keep, against a server that has little memory. */
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { type ClientHttp2Stream, connect } from "node:http2";
import { remoteStore } from "holdfast/remote";
import { afterEach, beforeEach, expect, test } from "vitest";
import { RequestWriter } from "../../src/protocol/index.ts";
import { claimRequest } from "../core/claim-request.ts";
import { forkProgram } from "../programs.ts";

let child: ChildProcess;
let url: string;
const toEnd: (() => unknown)[] = [];

beforeEach(async () => {
  child = forkProgram(new URL("server-process.ts", import.meta.url), [], {
    execArgv: ["--max-old-space-size=256"],
  });
  const [started] = (await once(child, "message")) as [{ url: string }];
  url = started.url;
});

afterEach(async () => {
  for (const end of toEnd.splice(0).reverse()) await end();
  child.kill("SIGKILL");
});

/** A session by hand. */
function openSession(): { readonly stream: ClientHttp2Stream; readonly writer: RequestWriter } {
  const connection = connect(url);
  connection.on("error", () => {});
  toEnd.push(() => connection.destroy());
  const stream = connection.request({
    ":method": "POST",
    ":path": "/holdfast.v1.Session/Open",
    "content-type": "application/grpc+proto",
  });
  stream.on("error", () => {}).resume();
  const writer = new RequestWriter();
  writer.hello(1, "by hand");
  return { stream, writer };
}

async function expectItGoesOn(): Promise<void> {
  const store = remoteStore(url);
  toEnd.push(() => store.close());
  expect(await store.acquire(claimRequest("honest", { key: "honest", ttlMs: 10_000 }))).toMatchObject({
    state: "held",
  });
  expect(child.exitCode).toBeNull();
}

test("owners that a session listens for have short names", async () => {
  for (let sessions = 0; sessions < 3; sessions++) {
    const { stream, writer } = openSession();
    const over = once(stream, "close");
    let trailers: Record<string, unknown> = {};
    stream.on("trailers", (headers) => {
      trailers = headers;
    });
    for (let n = 0; n < 300 && !stream.destroyed; n++) {
      writer.listen(`${n}${"x".repeat(1_000_000)}`);
      if (!stream.write(writer.take())) await Promise.race([once(stream, "drain").catch(() => {}), over]);
    }
    await over;
    expect(trailers["grpc-status"]).toBe("3");
  }
  await expectItGoesOn();
});
