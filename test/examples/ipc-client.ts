/** The child's side of the tests of the ipc store: asks for the keys that it is sent, and prints what it got. */
import { HoldfastError } from "holdfast";
import { ipcStore } from "../../examples/replicas/ipc-store.ts";

const store = ipcStore();

process.on("message", (message: { type?: string; ask?: string }) => {
  if (message.ask !== undefined) void ask(message.ask);
});
process.once("disconnect", () => void ask("later"));
console.log("ready");

async function ask(key: string): Promise<void> {
  const request = {
    key,
    id: "id",
    token: "token",
    weight: 1,
    limit: 1,
    priority: 0,
    ttlMs: 10_000,
    wait: false,
  };
  try {
    const answer = store.acquire({ ...request, owner: "client", info: "", application: "" });
    console.log(`asked for "${key}"`);
    const got = await answer;
    console.log(`"${key}": ${got.state} ${got.state === "held" ? typeof got.fence : ""}`);
  } catch (error) {
    const { code, message } = HoldfastError.from(error);
    console.log(`"${key}": ${code} ${message}`);
  }
}
