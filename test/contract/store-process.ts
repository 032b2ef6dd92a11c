/** A process that opens stores over a folder and asks them what its parent wants to know: the other end of `process-stores.ts`. */
import { type GrantRef, HoldfastError, type RenewAnswer, type Store, type Unsubscribe } from "holdfast";
import { fileStore } from "holdfast/file";

/** A message of the parent: a call of a store by its number. */
export interface Call {
  readonly number: number;
  readonly store: number;
  readonly verb: "open" | "acquire" | "renew" | "release" | "look" | "listen" | "unlisten" | "close";
  readonly argument: unknown;
}

/** A message to the parent: the answer to a call, or grants for the listener of this number. */
export type Told =
  | { readonly number: number; readonly answer: unknown }
  | { readonly number: number; readonly failure: Failure }
  | { readonly listener: number; readonly refs: readonly GrantRef[] };

/** Whom to listen for, and under which number. */
export interface Listen {
  readonly owner: string;
  readonly listener: number;
}

/** An error as it travels. */
export type Failure = Pick<HoldfastError, "code" | "message" | "key">;

const [folder = ""] = process.argv.slice(2);
const stores = new Map<number, Store>();
const listening = new Map<number, Unsubscribe>();

process.on("message", async (message) => {
  const call = message as Call;
  try {
    tell({ number: call.number, answer: await make(call) });
  } catch (error) {
    tell({ number: call.number, failure: failureOf(error) });
  }
});
// The tests are over, or their process is gone.
process.on("disconnect", () => process.exit());

async function make({ store: number, verb, argument }: Call): Promise<unknown> {
  if (verb === "open") {
    const store = fileStore(folder, argument as Parameters<typeof fileStore>[1]);
    stores.set(number, store);
    return { name: store.name, durability: store.durability, counts: store.counts };
  }
  const store = stores.get(number);
  if (store === undefined) throw new Error(`There is no store ${number}.`);
  switch (verb) {
    case "acquire":
      return store.acquire(argument as Parameters<Store["acquire"]>[0]);
    case "renew":
      return (await store.renew(argument as Parameters<Store["renew"]>[0])).map(travelling);
    case "release":
      return store.release(argument as Parameters<Store["release"]>[0]);
    case "look":
      return store.look(argument as Parameters<Store["look"]>[0]);
    case "close":
      return store.close();
    case "listen": {
      const { owner, listener } = argument as Listen;
      listening.set(
        listener,
        store.onGrant(owner, (refs) => tell({ listener, refs })),
      );
      return undefined;
    }
    case "unlisten":
      return listening.get(argument as number)?.();
  }
}

/** The channel would make a plain error of the one in an answer. */
function travelling(answer: RenewAnswer): unknown {
  return answer.state === "failed" ? { ...answer, error: failureOf(answer.error) } : answer;
}

function failureOf(error: unknown): Failure {
  const { code, message, key } = HoldfastError.from(error);
  return { code, message, key };
}

function tell(told: Told): void {
  if (process.connected) process.send?.(told);
}
