/** Commands to try with a new server. */
export function welcome(url: string, store: string): string {
  const host = url.replace(/^https?:\/\//, "");
  const isUsual = host === "127.0.0.1:7420";
  const server = isUsual ? "" : ` --server ${url.startsWith("https:") ? url : host}`;
  return `
Holdfast listens on ${url} and keeps its locks in ${store}. Ctrl-C stops it; held locks stay held.

  From a shell, in another terminal (npx holdfast, or node dist/cli/main.js in a clone):

    holdfast run hello${server} -- sh -c 'echo "fence $HOLDFAST_FENCE"; sleep 30'
    holdfast ls${server}
    holdfast doctor${server}

  From anywhere:

    curl -s ${url}/holdfast.v1.Locks/AcquireDetached -H 'content-type: application/json' \\
      -d '{"key": "hello", "ttlMs": 60000, "maxWaitMs": 0}'

  From TypeScript:

    import { createLocks } from ${quoted("holdfast")};
    import { remoteStore } from ${quoted("holdfast/remote")};

    const locks = createLocks(remoteStore("${url}"));
    await locks.mutex("hello").run(async (lease) => console.log(lease.fence));
`;
}

/** Not written as literals, which the import check would take for imports. */
function quoted(name: string): string {
  return JSON.stringify(name);
}
