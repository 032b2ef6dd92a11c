/** A store for a thread, in TypeScript, that says when it has renewed a lease for the first time. */
import type { Store } from "holdfast";
import { openStore as openByUrl } from "holdfast/open";

export async function openStore(data: { url: string; mark: SharedArrayBuffer }): Promise<Store> {
  const store = await openByUrl(data.url);
  const renew = store.renew.bind(store);
  store.renew = async (refs) => {
    const answers = await renew(refs);
    Atomics.store(new Int32Array(data.mark), 0, 1);
    return answers;
  };
  return store;
}
