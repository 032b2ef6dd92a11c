import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Server, type Socket } from "node:net";
import { afterEach, beforeEach, expect, test } from "vitest";
import { until } from "./engine.ts";
import {
  cutReplyTo,
  cutRequest,
  delayBy,
  loseReplies,
  type NetworkProxy,
  silence,
  startProxy,
} from "./proxy.ts";

/** Answers each piece with the same in capitals, and remembers what it was asked. */
let server: Server;
let heard: string;
let proxy: NetworkProxy;

beforeEach(async () => {
  heard = "";
  server = createServer((socket) => {
    socket.on("error", () => {});
    socket.setEncoding("utf8").on("data", (text: string) => {
      heard += text;
      socket.write(text.toUpperCase());
    });
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  proxy = await startProxy((server.address() as AddressInfo).port);
});

afterEach(async () => {
  await proxy.stop();
  server.close();
});

test("carries both directions, and the end of a connection", async () => {
  const client = await open();
  client.socket.write("one");
  await client.hears("ONE");
  expect(proxy.connections).toBe(1);
  client.socket.end();
  await client.closed;
  expect(client.error).toBeUndefined();
  await until("it is gone", async () => proxy.connections === 0);
});

test("holds what is sent during a partition, and delivers it in order afterwards", async () => {
  const client = await open();
  proxy.decide(silence);
  client.socket.write("one");
  await new Promise((resolve) => setTimeout(resolve, 50));
  client.socket.write("two");
  expect([heard, client.heard]).toEqual(["", ""]);
  proxy.heal();
  await client.hears("ONETWO");
  expect(heard).toBe("onetwo");
});

test("lets the server act and loses its reply; the connection does not outlive that", async () => {
  const client = await open();
  proxy.decide(loseReplies);
  client.socket.write("one");
  await until("the server heard it", async () => heard === "one");
  proxy.heal();
  await client.closed;
  expect(client.heard).toBe("");
});

test("resets the connection of one request after the server has it, and no other", async () => {
  const [one, two] = [await open(), await open()];
  proxy.decide(cutReplyTo("swap"));
  two.socket.write("read");
  await two.hears("READ");
  one.socket.write("swap");
  await one.closed;
  expect([one.heard, one.error, heard]).toEqual(["", "ECONNRESET", "readswap"]);
  two.socket.write("swap");
  await two.hears("READSWAP");
});

test("resets a connection in the middle of a request", async () => {
  const client = await open();
  proxy.decide(cutRequest("swap", 2));
  client.socket.write("swap");
  await client.closed;
  await until("the server heard a part", async () => heard === "sw");
  expect(client.error).toBe("ECONNRESET");
  const next = await open();
  next.socket.write("swap");
  await next.hears("SWAP");
});

test("delays in both directions", async () => {
  const client = await open();
  proxy.decide(delayBy(40));
  const start = performance.now();
  client.socket.write("one");
  await client.hears("ONE");
  // Timers may fire a moment early.
  expect(performance.now() - start).toBeGreaterThan(75);
});

test("refuses connections until it heals, and cuts those that are open", async () => {
  const client = await open();
  client.socket.write("one");
  await client.hears("ONE");
  proxy.refuse();
  await client.closed;
  const refused = await open();
  await refused.closed;
  expect(refused.error).toBe("ECONNRESET");
  proxy.heal();
  const next = await open();
  next.socket.write("two");
  await next.hears("TWO");
});

test("leads those who come next to another server, and cuts those who are with the one before", async () => {
  const other = createServer((socket) => socket.on("error", () => {}).end("other"));
  await once(other.listen(0, "127.0.0.1"), "listening");
  const client = await open();
  client.socket.write("one");
  await client.hears("ONE");
  proxy.leadTo((other.address() as AddressInfo).port);
  await client.closed;
  expect(client.error).toBe("ECONNRESET");
  const next = await open();
  await next.hears("other");
  other.close();
});

test("resets the client where no server listens", async () => {
  server.close();
  const client = await open();
  await client.closed;
  expect(client.error).toBe("ECONNRESET");
});

async function open() {
  const socket = connect(proxy.port, "127.0.0.1");
  const client = {
    socket,
    heard: "",
    error: undefined as string | undefined,
    closed: new Promise<void>((resolve) => socket.once("close", () => resolve())),
    hears: (text: string) => until(`the client hears ${text}`, async () => client.heard === text),
  };
  socket.on("error", (error: NodeJS.ErrnoException) => {
    client.error = error.code;
  });
  socket.setEncoding("utf8").on("data", (text: string) => {
    client.heard += text;
  });
  await Promise.race([once(socket as Socket, "connect").catch(() => {}), client.closed]);
  return client;
}
