/** Assembles the server. */
import { isIP } from "node:net";
import type { Logger } from "pino";
import { withTimeout } from "../platform/index.ts";
import { checkInteger, type HoldfastError, invalid, type Store } from "../store/index.ts";
import { Audit } from "./audit.ts";
import { Callers } from "./callers.ts";
import { createCalls } from "./calls.ts";
import { ClaimRegistry } from "./claim-registry.ts";
import { ErrorLog, loggable } from "./error-log.ts";
import { GuardedStore } from "./guarded-store.ts";
import { Health } from "./health.ts";
import { createHostCheck, isLoopback } from "./host-check.ts";
import { resolveLimits, type ServerLimits } from "./limits.ts";
import { type Listener, listen, type TlsOptions } from "./listener.ts";
import { type Log, openLog } from "./log.ts";
import { MemoryBudget } from "./memory-budget.ts";
import { Metrics } from "./metrics.ts";
import { createRequestRouter } from "./request-router.ts";
import { Sessions } from "./sessions.ts";
import { type TokenEntry, Tokens } from "./tokens.ts";

export interface ServerOptions {
  /** The store of the locks. Servers over one shared store serve the same locks. */
  readonly store: Store;
  /** The address to listen on. Addresses beyond loopback need `tokens` or `insecure`. Default "127.0.0.1". */
  readonly host?: string;
  /** The port to listen on; 0 takes any free port. Default 7420. */
  readonly port?: number;
  /** The path of a token file, which is read again when it changes, or its entries. Default: every caller may do everything. */
  readonly tokens?: string | readonly TokenEntry[];
  /** Whether to listen beyond loopback without tokens. Default false. */
  readonly insecure?: boolean;
  /**
   * The names of the server, such as "locks.internal". Addresses, loopback names and names in the certificate need not be listed.
   * Requests for other names are refused. Default: any name with tokens, no further names without.
   */
  readonly hosts?: readonly string[];
  /** Encrypts connections, and with `clientCa` requires certificates of clients. Default: no encryption. */
  readonly tls?: TlsOptions;
  readonly limits?: ServerLimits;
  /** The logger. Only the audit log has keys and ids of claims; no line has their tokens. Default: JSON lines on the standard output. */
  readonly logger?: Logger;
  /** Whether the audit log also has the grant, release and loss of each claim. Default false. */
  readonly auditClaims?: boolean;
  /** Whether stopping the server also closes the store. Default false. */
  readonly closeStore?: boolean;
}

export interface StopOptions {
  /** The time for open calls to end. Default 10,000. */
  readonly graceMs?: number;
}

export interface LockServer extends AsyncDisposable {
  readonly host: string;
  readonly port: number;
  /** The URL for `remoteStore`. */
  readonly url: string;
  /** Reads the token file again at once. An invalid file is logged and changes nothing. */
  reloadTokens(): Promise<void>;
  /**
   * Refuses new calls, asks clients to use another server, answers open requests, and closes. Leases stay in the store, so clients
   * keep them through another server.
   */
  stop(options?: StopOptions): Promise<void>;
}

/** The interval of removing expired claims from the registry. */
const SWEEP_MS = 1_000;

/**
 * Starts a lock server over a store.
 *
 * @example
 * const server = await startServer({ store: memoryStore() });
 * const locks = createLocks(remoteStore(server.url));
 */
export async function startServer(options: ServerOptions): Promise<LockServer> {
  if (options.logger !== undefined)
    return startLogged(options, { logger: options.logger, close: async () => {} });
  const log = openLog();
  try {
    return await startLogged(options, log);
  } catch (error) {
    await log.close();
    throw error;
  }
}

async function startLogged(options: ServerOptions, log: Log): Promise<LockServer> {
  const { store, host = "127.0.0.1", insecure = false } = options;
  const port = checkInteger("port", options.port ?? 7_420, 0, 65_535);
  const limits = resolveLimits(options.limits ?? {});
  if (!isLoopback(host) && options.tokens === undefined && !insecure) throw exposed(host);
  const hostCheck = createHostCheck({ hosts: hostsOf(options), cert: options.tls?.cert });
  const { logger } = log;
  const tokens = await openTokens(options.tokens, logger);

  const metrics = new Metrics();
  const audit = new Audit(logger, options.auditClaims === true);
  const registry = new ClaimRegistry(metrics, audit);
  const guarded = new GuardedStore(store, limits, registry, metrics, audit);
  const health = new Health(store);
  const errors = new ErrorLog(logger, metrics, audit);
  const budget = new MemoryBudget(limits.maxKeptBytes);
  const context = { store: guarded, limits, budget, callers: new Callers(tokens), metrics, audit, errors };
  const sessions = new Sessions(context);
  const calls = createCalls(context, health, logger);
  const sweep = setInterval(() => {
    registry.sweep(performance.now());
    audit.nextSecond();
  }, SWEEP_MS).unref();

  let listener: Listener;
  try {
    const handle = createRequestRouter(context, { calls, sessions, health, hostCheck });
    listener = await listen({ host, port, tls: options.tls, limits, errors, metrics, handle });
  } catch (error) {
    clearInterval(sweep);
    tokens?.close();
    throw error;
  }
  const url = urlOf(listener, options.tls !== undefined);
  logger.info({ url, store: store.name, durability: store.durability }, "listening");

  let stopped: Promise<void> | undefined;
  const stop = async (graceMs: number) => {
    logger.info({ graceMs }, "stopping");
    health.stop();
    errors.stop();
    sessions.leave("The server is stopping.");
    calls.leave();
    await withTimeout(graceMs, listener.drain(), () => {});
    clearInterval(sweep);
    tokens?.close();
    await listener.end();
    await calls.close();
    guarded.close();
    audit.nextSecond();
    if (options.closeStore === true) await store.close();
    logger.info("stopped");
    await log.close();
  };
  const server: LockServer = {
    host: listener.host,
    port: listener.port,
    url,
    async reloadTokens() {
      await tokens?.reload(true);
    },
    async stop({ graceMs = 10_000 } = {}) {
      stopped ??= stop(checkInteger("graceMs", graceMs, 0, 3_600_000));
      await stopped;
    },
    async [Symbol.asyncDispose]() {
      await server.stop();
    },
  };
  return server;
}

async function openTokens(tokens: ServerOptions["tokens"], logger: Logger): Promise<Tokens | undefined> {
  if (tokens === undefined) return undefined;
  if (typeof tokens !== "string") return new Tokens(tokens);
  // The file is checked every second, so the same error is logged once.
  let logged: string | undefined;
  return Tokens.fromFile(tokens, (error) => {
    const isRepeated = error !== undefined && logged === String(error);
    logged = error === undefined ? undefined : String(error);
    const err = loggable(error);
    if (error === undefined) logger.info("read the token file again");
    else if (!isRepeated)
      logger.error({ err }, "the token file could not be read; the previous tokens stay in force");
  });
}

/** The names in `Host` that the server accepts. Undefined accepts any name. */
function hostsOf({ hosts, host = "", tokens }: ServerOptions): readonly string[] | undefined {
  if (hosts === undefined && tokens !== undefined) return undefined;
  return host === "" || isIP(host) !== 0 ? (hosts ?? []) : [...(hosts ?? []), host];
}

function exposed(host: string): HoldfastError {
  return invalid(
    `host "${host}" is reachable from other machines, whose users could take and end every lock. ` +
      "Configure tokens (--tokens), or allow that with insecure: true (--insecure).",
  );
}

function urlOf({ host, port }: Listener, encrypted: boolean): string {
  return `${encrypted ? "https" : "http"}://${host.includes(":") ? `[${host}]` : host}:${port}`;
}
