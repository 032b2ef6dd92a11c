/**
 * Why a lock alone is not enough: a client is paused while it holds the lock, its lease runs out, another client takes over and
 * writes, and then the first one wakes up and writes as well.
 *
 * The clients are processes of their own. This process keeps the locks, is the storage that they write to, and stops the first
 * client with SIGSTOP, as a garbage collection, a swapping machine or a debugger would.
 */
import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { text } from "node:stream/consumers";
import { fileURLToPath } from "node:url";
import { memoryStore } from "holdfast";
import { createFenceGate, expressFence } from "holdfast/fencing";
import { serveStore } from "../replicas/ipc-store.ts";
import type { ClientEvent } from "./client.ts";

const TTL_MS = 1_000;

const startMs = performance.now();
const store = memoryStore();
/** Two files. Anybody may write the first one; the second one is behind a gate. */
const files = new Map<string, string>();
const gate = createFenceGate();
const fenced = expressFence(gate);
const clients: ChildProcess[] = [];

const storage = createServer((request, response) => {
  if (request.url === "/fenced.txt") fenced(request, response, () => write(request, response));
  else write(request, response);
});
await once(storage.listen(0, "127.0.0.1"), "listening");
const url = `http://127.0.0.1:${(storage.address() as AddressInfo).port}`;

process.on("exit", () => {
  for (const client of clients) client.kill("SIGKILL");
});

print("demo", `two clients, one lock with a ttl of ${TTL_MS} ms, and a storage with two files`);
const first = startClient("client-1");
await first.event("holds");
first.process.kill("SIGSTOP");
print("demo", "client-1 is stopped in the middle of its work (SIGSTOP). It can renew nothing");

const second = startClient("client-2");
await second.event("holds");
second.process.send("write");
await second.event("wrote");

print("demo", "client-1 goes on (SIGCONT), and does what it was about to do");
first.process.send("write");
first.process.kill("SIGCONT");
await first.event("wrote");

print("storage", `plain.txt:  ${files.get("/plain.txt")}`);
print("storage", `fenced.txt: ${files.get("/fenced.txt")}`);
const corrupted = files.get("/plain.txt") === "written by client-1";
const guarded = files.get("/fenced.txt") === "written by client-2";
console.log(
  corrupted && guarded
    ? "\nWithout the fence, the write of the former holder has destroyed that of the present one. With it, it was refused."
    : "\nThat is not what should have happened.",
);
process.exitCode = corrupted && guarded ? 0 : 1;

await Promise.all([first.ended, second.ended]);
storage.close();
await gate.close();
await store.close();

async function save(request: IncomingMessage, response: ServerResponse): Promise<void> {
  files.set(request.url ?? "", await text(request));
  response.end();
}

function write(request: IncomingMessage, response: ServerResponse): void {
  save(request, response).catch((error) => response.destroy(error));
}

function startClient(name: string) {
  const program = fileURLToPath(new URL("./client.ts", import.meta.url));
  const child = fork(program, [name, url, `${TTL_MS}`], { serialization: "advanced" });
  clients.push(child);
  serveStore(store, child);
  const heard: ClientEvent[] = [];
  child.on("message", (message: Partial<ClientEvent>) => {
    if (message.type !== "client") return;
    heard.push(message as ClientEvent);
    print(name, message.text ?? "");
    child.emit("heard");
  });
  return {
    process: child,
    ended: once(child, "exit"),
    async event(event: ClientEvent["event"]): Promise<void> {
      while (!heard.some((each) => each.event === event)) await once(child, "heard");
    },
  };
}

function print(who: string, what: string): void {
  const time = `${((performance.now() - startMs) / 1_000).toFixed(2)} s`.padStart(8);
  console.log(`${time}  ${who.padEnd(9)}  ${what}`);
}
