/** Which store a command works on: straight, or through a server. */
import { readFileSync } from "node:fs";
import { type Command, Option } from "commander";
import { createLocks, HoldfastError, type Locks, type Store } from "../core/index.ts";
import { type OpenStoreOptions, openStore } from "../open/index.ts";
import { parseDuration } from "./duration.ts";
import { exitCodes } from "./exit-codes.ts";
import { CliError, usageError } from "./failure.ts";

/** The options of every command that needs a store, as commander reads them. */
export interface TargetOptions {
  readonly store?: string;
  readonly server?: string;
  readonly token?: string;
  readonly tokenFile?: string;
  readonly tlsCa?: string;
  readonly clientCert?: string;
  readonly clientKey?: string;
  readonly timeout: string;
}

export const DEFAULT_SERVER = "holdfast://127.0.0.1:7420";

/** Adds those options. Each has a variable in the environment, but for the token of which the flag is the worse way. */
export function addTargetOptions(command: Command): Command {
  return command
    .addOption(new Option("--store <url>", "the store, such as redis://localhost:6379").env("HOLDFAST_STORE"))
    .addOption(
      new Option("--server <url>", `a Holdfast server instead of a store (default: ${DEFAULT_SERVER})`).env(
        "HOLDFAST_SERVER",
      ),
    )
    .addOption(
      new Option(
        "--token <token>",
        "the token for the server; HOLDFAST_TOKEN keeps it out of the list of processes",
      ),
    )
    .addOption(new Option("--token-file <path>", "a file with the token").env("HOLDFAST_TOKEN_FILE"))
    .addOption(
      new Option("--tls-ca <path>", "certificates to trust, for holdfasts: (PEM)").env("HOLDFAST_TLS_CA"),
    )
    .addOption(
      new Option("--client-cert <path>", "a certificate to show to the server (PEM)").env(
        "HOLDFAST_CLIENT_CERT",
      ),
    )
    .addOption(new Option("--client-key <path>", "its private key (PEM)").env("HOLDFAST_CLIENT_KEY"))
    .addOption(
      new Option("--timeout <duration>", "how long the store may take to answer")
        .env("HOLDFAST_TIMEOUT")
        .default("5s"),
    );
}

export interface Target {
  readonly url: string;
  /** Whether somebody named it. Otherwise it is the default server, which may well not be there. */
  readonly named: boolean;
  readonly options: OpenStoreOptions;
  readonly timeoutMs: number;
}

/** A flag wins over the environment; of flags, and of variables, there can be one only. */
export function resolveTarget(command: Command): Target {
  const options = command.opts<TargetOptions>();
  const timeoutMs = parseDuration("--timeout", options.timeout);
  if (timeoutMs < 10) throw usageError(`--timeout must be 10ms or more, not ${options.timeout}.`);
  const url = urlOf(command, options);
  return {
    url: url ?? DEFAULT_SERVER,
    named: url !== undefined,
    options: connectionOptions(options, url ?? DEFAULT_SERVER),
    timeoutMs,
  };
}

function urlOf(command: Command, options: TargetOptions): string | undefined {
  // A variable that is empty says nothing.
  const store = options.store || undefined;
  const server = options.server || undefined;
  const bothFrom = (source: string) =>
    store !== undefined &&
    server !== undefined &&
    command.getOptionValueSource("store") === source &&
    command.getOptionValueSource("server") === source;
  if (bothFrom("cli")) throw usageError("--store and --server exclude each other: pass one of them.");
  if (bothFrom("env")) {
    throw usageError(
      "HOLDFAST_STORE and HOLDFAST_SERVER exclude each other: set one of them, or pass a flag.",
    );
  }
  const storeWins = store !== undefined && command.getOptionValueSource("server") !== "cli";
  if (storeWins) {
    if (/^memory:/i.test(store)) {
      throw usageError(
        "memory: is the memory of this very command, so a lock there keeps nobody out.",
        "Start a server with `holdfast serve --memory`, and leave --store away.",
      );
    }
    return store;
  }
  return server === undefined ? undefined : serverUrl(server);
}

/** A server may be named as a host, by the URL that it logs, or as a store. */
function serverUrl(text: string): string {
  if (/^holdfasts?:\/\//i.test(text)) return text;
  if (/^https?:\/\//i.test(text)) return text.replace(/^http/i, "holdfast");
  if (/^[a-z+]+:\/\//i.test(text)) {
    throw usageError(
      "--server must be a host such as locks:7420, or an http, https, holdfast or holdfasts URL.",
    );
  }
  return `holdfast://${text}`;
}

function connectionOptions(options: TargetOptions, url: string): OpenStoreOptions {
  // Here, too, a variable that is empty says nothing.
  const tlsCa = options.tlsCa || undefined;
  const clientCert = options.clientCert || undefined;
  const clientKey = options.clientKey || undefined;
  if (!/^holdfasts?:/i.test(url)) return {};
  if ((clientCert === undefined) !== (clientKey === undefined)) {
    throw usageError("--client-cert and --client-key belong together: pass both.");
  }
  const token = tokenOf(options);
  const encrypted = /^holdfasts:/i.test(url);
  if (!encrypted && (tlsCa ?? clientCert) !== undefined) {
    throw usageError(
      `Certificates are of no use with ${url}, which is not encrypted. Write holdfasts:// instead.`,
    );
  }
  return {
    ...(token !== undefined && { token }),
    ...(encrypted && {
      tls: {
        ...(tlsCa !== undefined && { ca: readNamed("--tls-ca", tlsCa) }),
        ...(clientCert !== undefined && { cert: readNamed("--client-cert", clientCert) }),
        ...(clientKey !== undefined && { key: readNamed("--client-key", clientKey) }),
      },
    }),
  };
}

function tokenOf({ token, tokenFile }: TargetOptions): string | undefined {
  if (token !== undefined) return token;
  if (tokenFile !== undefined && tokenFile !== "") return readNamed("--token-file", tokenFile).trim();
  const { HOLDFAST_TOKEN } = process.env;
  return HOLDFAST_TOKEN === undefined || HOLDFAST_TOKEN === "" ? undefined : HOLDFAST_TOKEN;
}

export function readNamed(name: string, path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch (error) {
    throw usageError(`${name} names a file that cannot be read: ${(error as Error).message}.`);
  }
}

export function openTarget({ url, options }: Target): Promise<Store> {
  return openStore(url, options);
}

/** Runs the body with a client of the target, and closes it whatever the body does. The signal cuts opening it short. */
export async function withLocks<T>(
  target: Target,
  body: (locks: Locks) => Promise<T>,
  signal?: AbortSignal,
): Promise<T> {
  let store: Store;
  try {
    store = await orAborted(openTarget(target), signal);
  } catch (error) {
    throw explained(error, target);
  }
  const locks = createLocks(store, {
    requestTimeoutMs: target.timeoutMs,
    application: "holdfast",
    onWarning: ({ message }) => process.stderr.write(`holdfast: ${message}\n`),
  });
  try {
    return await body(locks);
  } catch (error) {
    throw explained(error, target);
  } finally {
    await locks.close();
  }
}

/** Nothing is asked of a store before it is open, so there is nothing to take back. */
function orAborted<T>(work: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) return work;
  return new Promise((resolve, reject) => {
    signal.addEventListener("abort", () => reject(signal.reason), { once: true });
    work.then(resolve, reject);
  });
}

/** Nobody named a store, and the default server is not there: what helps is to be told what there is to name. */
function explained(error: unknown, target: Target): unknown {
  const advice = adviceFor(target);
  if (advice === undefined || !(error instanceof HoldfastError) || error.code !== "STORE_UNAVAILABLE")
    return error;
  const message = `STORE_UNAVAILABLE: no store was named, and there is no server at ${target.url}.`;
  return new CliError(exitCodes.unavailable, message, advice);
}

/** What to do when it cannot be reached, where nobody has named it. */
export function adviceFor({ named }: Target): string | undefined {
  if (named) return undefined;
  return (
    "Start one with `holdfast serve`, or name a store: --store redis://host:6379, --server host:7420, " +
    "HOLDFAST_STORE or HOLDFAST_SERVER."
  );
}
