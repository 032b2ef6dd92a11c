/**
 * A process that goes through a gate with ever higher fences until it is killed, and reports each time it is inside. With "handovers" it
 * makes a gate for each fence, which is the time when it asks, and notes the fence in a log.
 */
import { appendFileSync } from "node:fs";
import { createFenceGate } from "holdfast/fencing";

const [file = "", last = "0", log = ""] = process.argv.slice(2);

if (last === "handovers") {
  while (process.connected) await handover();
} else {
  const gate = createFenceGate({ file });
  for (let fence = Number(last) + 1; process.connected; fence++) {
    await gate.run({ fence: BigInt(fence), key: "report" }, () => process.send?.(fence));
  }
}

async function handover(): Promise<void> {
  const gate = createFenceGate({ file });
  try {
    // One clock for all processes of the machine.
    const lease = { fence: process.hrtime.bigint(), key: "report" };
    await gate.run(lease, () => appendFileSync(log, `${lease.fence}\n`));
  } catch (error) {
    const { code } = error as { code?: string };
    if (code !== "STALE_FENCE" && code !== "STORE_UNAVAILABLE" && code !== "STORE_FAILURE") throw error;
  }
  await gate.close();
}
