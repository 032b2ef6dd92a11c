/** A process that goes through a gate with ever higher fences, and says so each time it is inside, until it is killed. */
import { createFenceGate } from "holdfast/fencing";

const [file = "", last = "0"] = process.argv.slice(2);
const gate = createFenceGate({ file });

for (let fence = Number(last) + 1; process.connected; fence++) {
  await gate.run({ fence: BigInt(fence), key: "report" }, () => process.send?.(fence));
}
