/**
 * Several replicas of a service contend for one job. One runs it and is killed in the middle; the next takes over.
 *
 * The replicas are processes of their own. This process keeps the locks, kills the first runner and tells the story.
 */
import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { styleText } from "node:util";
import { memoryStore } from "holdfast";
import { serveStore } from "./ipc-store.ts";
import { isReplicaEvent, job, type Progress, type ReplicaEvent } from "./story.ts";

const REPLICAS = 3;
/** The first runner is killed when it has done this many parts. */
const KILL_AFTER_PARTS = 3;

type Colour = "green" | "red";

const startMs = performance.now();
const store = memoryStore();
const replicas = new Map<string, ChildProcess>();
/** Stands for the storage that the job writes to. It remembers the highest fence, and refuses what is below. */
const ledger = { partsDone: 0, fence: 0n };
let killed: string | undefined;

console.log(`${REPLICAS} replicas, one job: "${job.key}". One of them runs it at a time.`);
console.log(`A lease lives for ${job.ttlMs} ms after its last heartbeat.\n`);

for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) {
  process.on(signal, () => {
    for (const child of replicas.values()) child.kill("SIGKILL");
    process.exit(130);
  });
}

const ends: Promise<unknown>[] = [];
for (let number = 1; number <= REPLICAS; number++) ends.push(startReplica(`replica-${number}`));
await Promise.all(ends);
await store.close();

const complete = ledger.partsDone === job.parts;
console.log(complete ? "\nThe job was done once, by two replicas in turn." : "\nThe job was not done.");
process.exitCode = complete && killed !== undefined ? 0 : 1;

async function startReplica(name: string): Promise<void> {
  const child = fork(fileURLToPath(new URL("./replica.ts", import.meta.url)), { serialization: "advanced" });
  replicas.set(name, child);
  serveStore(store, child);
  child.on("message", (message) => {
    if (isReplicaEvent(message)) happened(name, child, message);
  });
  print(name, `starts as process ${child.pid}`);
  const [code, signal] = (await once(child, "exit")) as [number | null, NodeJS.Signals | null];
  print(name, signal === null ? `ends with exit code ${code}` : `is dead (${signal})`);
}

function happened(name: string, child: ChildProcess, message: ReplicaEvent): void {
  switch (message.event) {
    case "waiting":
      print(name, "asks for the lock");
      return;
    case "running":
      print(name, runningText(message.fence), "green");
      child.send({ type: "progress", partsDone: ledger.partsDone } satisfies Progress);
      return;
    case "part":
      writePart(name, message.part, message.fence);
      if (killed === undefined && message.part === KILL_AFTER_PARTS) kill(name, child);
      return;
    case "finished":
      print(name, "has finished and gives the lock back", "green");
  }
}

function runningText(fence: bigint): string {
  if (ledger.partsDone === job.parts) return `holds the lock, fence ${fence}: nothing is left to do`;
  if (killed === undefined) return `holds the lock, fence ${fence}: runs the job`;
  return `holds the lock, fence ${fence}: takes over after part ${ledger.partsDone}`;
}

function writePart(name: string, part: number, fence: bigint): void {
  if (fence < ledger.fence) {
    print(name, `part ${part} is refused: fence ${fence} is older than ${ledger.fence}`, "red");
    return;
  }
  ledger.fence = fence;
  ledger.partsDone = part;
  print(name, `part ${part} of ${job.parts} is done`);
}

function kill(name: string, child: ChildProcess): void {
  killed = name;
  child.kill("SIGKILL");
  print("demo", `kills ${name} with SIGKILL. It can release nothing; its lease has to run out`, "red");
}

function print(who: string, what: string, colour?: Colour): void {
  const time = `${((performance.now() - startMs) / 1_000).toFixed(2)} s`.padStart(8);
  const line = `${time}  ${who.padEnd(9)}  ${what}`;
  console.log(colour !== undefined && process.stdout.isTTY ? styleText(colour, line) : line);
}
