/** Puts the server together. */
import { isIP } from "node:net";
import type { Logger } from "pino";
import { checkInteger, HoldfastError, invalid, type Store } from "../store/index.ts";
import { Audit } from "./audit.ts";
import { createCalls } from "./calls.ts";
import { createEdge } from "./edge.ts";
import { GuardedStore } from "./guarded-store.ts";
import { Health } from "./health.ts";
import { createHostCheck, isLoopback } from "./host-check.ts";
import { Identities } from "./identity.ts";
import { Kept } from "./kept.ts";
import { Ledger } from "./ledger.ts";
import { resolveLimits, type ServerLimits } from "./limits.ts";
import { type Listener, listen, type TlsOptions } from "./listener.ts";
import { type Log, openLog } from "./log.ts";
import { countUp, Metrics } from "./metrics.ts";
import { Sessions } from "./sessions.ts";
import { type TokenEntry, Tokens } from "./tokens.ts";
import { loggable, TroubleLog } from "./trouble-log.ts";

export interface ServerOptions {
  /** Where the locks are kept. Several servers over one shared store are one lock space. */
  readonly store: Store;
  /** The address to listen on. Anything but loopback takes `tokens` or `insecure`. Default "127.0.0.1". */
  readonly host?: string;
  /** The port to listen on; 0 is any that is free. Default 7420. */
  readonly port?: number;
  /** Who may do what: the path of a token file, which is read again when it changes, or its entries. Default: everybody everything. */
  readonly tokens?: string | readonly TokenEntry[];
  /** Whether to listen beyond loopback without tokens. Default false. */
  readonly insecure?: boolean;
  /**
   * The names that clients reach the server by, such as "locks.internal". Requests for another name are refused; those for an address, for
   * loopback and for a name in the certificate are not. Default: any name if there are tokens, otherwise no more names.
   */
  readonly hosts?: readonly string[];
  /** Encrypts connections, and with `clientCa` demands certificates of clients. Default: neither. */
  readonly tls?: TlsOptions;
  /** The bounds of what clients can ask for. */
  readonly limits?: ServerLimits;
  /** Where to log to. Keys and ids of claims are only in lines of the audit log, their tokens in none. Default: JSON lines on the standard output, from "info" on. */
  readonly logger?: Logger;
  /** Whether the audit log also says who was granted, released and lost each claim. Default false. */
  readonly auditClaims?: boolean;
  /** Whether stopping the server also closes the store. Default false. */
  readonly closeStore?: boolean;
}

export interface StopOptions {
  /** How long what is under way may take to finish. Default 10,000. */
  readonly graceMs?: number;
}

/** A server that listens. */
export interface LockServer extends AsyncDisposable {
  readonly host: string;
  readonly port: number;
  /** Where clients find it, as `remoteStore` takes it. */
  readonly url: string;
  /** Reads the token file again now, instead of when a change of it is noticed. A file that is wrong is logged, and changes nothing. */
  reloadTokens(): Promise<void>;
  /**
   * Takes nothing new, asks clients to go elsewhere, answers what is under way, and closes. Leases stay as they are: clients go
   * on with them on another server over the same store.
   */
  stop(options?: StopOptions): Promise<void>;
}

/** How often what is known of claims is looked through for expired ones. */
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
  const ledger = new Ledger(metrics, audit);
  const guarded = new GuardedStore(store, limits, ledger, metrics, audit);
  const identities = new Identities(tokens);
  const health = new Health(store);
  const trouble = new TroubleLog(logger);
  const onError = (error: unknown) => {
    countUp(metrics.errors, error instanceof HoldfastError ? error.code : "STORE_FAILURE");
    trouble.failed(error);
  };
  const onDrop = (reason: string) => {
    countUp(metrics.dropped, reason);
    trouble.dropped(reason);
  };
  const onUnexpected = (error: unknown) => {
    countUp(metrics.errors, "UNEXPECTED");
    trouble.unexpected(error);
  };
  const kept = new Kept(limits.maxKeptBytes);
  const common = { store: guarded, limits, kept, identities, metrics, audit, onError, onDrop, onUnexpected };
  const sessions = new Sessions(common);
  const calls = createCalls({ ...common, health, logger });
  const sweep = setInterval(() => {
    ledger.sweep(performance.now());
    audit.nextSecond();
  }, SWEEP_MS).unref();

  let listener: Listener;
  try {
    listener = await listen({
      host,
      port,
      tls: options.tls,
      limits,
      onDrop,
      onConnections: (count) => {
        metrics.connections = count;
      },
      onUnexpected,
      handle: createEdge({ ...common, calls, sessions, health, hostCheck }),
    });
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
    trouble.stop();
    sessions.leave("The server is stopping.");
    calls.leave();
    await within(graceMs, listener.drain());
    clearInterval(sweep);
    tokens?.close();
    await listener.end();
    await calls.close();
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
  // A file that is gone is found gone every second.
  let told: string | undefined;
  return Tokens.fromFile(tokens, (error) => {
    const again = error !== undefined && told === String(error);
    told = error === undefined ? undefined : String(error);
    if (error === undefined) logger.info("read the token file again");
    else if (!again)
      logger.error(
        { err: loggable(error) },
        "the token file could not be read; the previous tokens stay in force",
      );
  });
}

/** The name that the server listens on is one that clients reach it by. */
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

async function within(ms: number, work: Promise<unknown>): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, ms);
  });
  await Promise.race([work, late]);
  clearTimeout(timer);
}
