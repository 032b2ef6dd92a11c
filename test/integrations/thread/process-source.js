/** Modules of stores for threads, as an application would have one: by what it is given, over a lock server or by URL. */
import { openStore as openByUrl } from "holdfast/open";
import { remoteStore } from "holdfast/remote";

/**
 * @param {{ url: string, deaths?: SharedArrayBuffer }} data With `deaths`, the thread ends after its first renewal, the
 *   first time that it is started: the first word counts starts, the second one renewals of later starts.
 */
export async function openStore({ url, deaths }) {
  const store = url.startsWith("http") ? remoteStore(url) : await openByUrl(url);
  if (deaths === undefined) return store;
  const words = new Int32Array(deaths);
  const isFirst = Atomics.add(words, 0, 1) === 0;
  const renew = store.renew.bind(store);
  store.renew = async (refs) => {
    const answers = await renew(refs);
    if (isFirst) setTimeout(() => process.exit(7), 50);
    else Atomics.add(words, 1, 1);
    return answers;
  };
  return store;
}
