/** The store of the heartbeat's thread: by a URL, or by a module. A store of the application's thread cannot be shared. */
import { isAbsolute } from "node:path";
import { pathToFileURL } from "node:url";
import { openStore, storeSchemes } from "../../open/index.ts";
import { HoldfastError, invalid, type Store } from "../../store/index.ts";
import type { StoreSource } from "./protocol.ts";

/** Options of `heartbeatThread` that say where it gets a store from. Exactly one of `url` and `module` is given. */
export interface SourceOptions {
  /** The URL of the store, as `openStore` of `holdfast/open` takes it. Not `memory:` or `file:`, which a process has once. */
  readonly url?: string;
  /**
   * A module that exports a function `openStore`, which returns a store or a promise of one: a `file:` URL or an absolute path. For
   * stores that a URL does not say enough about.
   */
  readonly module?: string | URL;
  /** What the module's `openStore` is called with. It is copied into the thread. Default: nothing. */
  readonly data?: unknown;
}

/** Checks what was asked for, as far as that can be said before it is opened. */
export function resolveSource({ url, module, data }: SourceOptions): StoreSource {
  if ((url === undefined) === (module === undefined)) {
    throw invalid("heartbeatThread requires exactly one of url and module.");
  }
  return url === undefined ? { module: fileUrlOf(module), data: copyOf(data) } : { url: checkUrl(url) };
}

function copyOf(data: unknown): unknown {
  try {
    return structuredClone(data);
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw new HoldfastError(
      "INVALID_ARGUMENT",
      `data of heartbeatThread cannot be copied into a thread: ${why} Pass plain values, and open clients in the module.`,
      { cause },
    );
  }
}

function checkUrl(url: string): string {
  const scheme = typeof url === "string" ? storeSchemes.find((known) => url.startsWith(known)) : undefined;
  if (scheme === undefined) {
    // Not the URL itself: it may contain a password.
    throw invalid(`url of heartbeatThread must begin with one of ${storeSchemes.join(", ")}.`);
  }
  if (scheme === "memory:" || scheme === "file:") {
    throw invalid(
      `url of heartbeatThread cannot be a ${scheme} store, because only one thread of a process can open it. ` +
        "Use a store on a server, such as redis: or postgres:, or a lock server.",
    );
  }
  return url;
}

function fileUrlOf(module: string | URL | undefined): string {
  if (module instanceof URL && module.protocol === "file:") return module.href;
  if (typeof module === "string" && module.startsWith("file:")) return new URL(module).href;
  if (typeof module === "string" && isAbsolute(module)) return pathToFileURL(module).href;
  throw invalid(
    'module of heartbeatThread must be a file: URL or an absolute path, such as new URL("./store.js", import.meta.url), ' +
      `not ${JSON.stringify(String(module))}.`,
  );
}

/** Opens the store, in the thread that is to use it. */
export async function openSource(source: StoreSource): Promise<Store> {
  if ("url" in source) return openStore(source.url);
  const exported = (await import(source.module)) as { readonly openStore?: unknown };
  if (typeof exported.openStore !== "function") {
    throw invalid(`${source.module} must export a function named openStore that returns a store.`);
  }
  const store = (await exported.openStore(source.data)) as Store | undefined;
  if (typeof store?.renew === "function" && typeof store.release === "function") return store;
  throw new HoldfastError("INVALID_ARGUMENT", `openStore of ${source.module} must return a store.`);
}
