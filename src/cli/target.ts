/** The store of a command, reached directly or through a server. */
import { readFileSync } from "node:fs";
import { type Command, Option } from "commander";
import { createLocks, type Locks } from "../client/index.ts";
import { type OpenStoreOptions, openStore } from "../open/index.ts";
import { HoldfastError, invalid, type Store } from "../store/index.ts";
import { parseDuration } from "./duration.ts";
import { exitCodes } from "./exit-codes.ts";
import { CliError, usageError } from "./failure.ts";

/** The options of every command that needs a store. */
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

/** Adds the options. Each has an environment variable; that of --token is in its help, because other users can read flags. */
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
        "the token for the server; prefer HOLDFAST_TOKEN, because flags appear in the process list",
      ),
    )
    .addOption(new Option("--token-file <path>", "a file with the token").env("HOLDFAST_TOKEN_FILE"))
    .addOption(
      new Option("--tls-ca <path>", "certificates to trust, for holdfasts: (PEM)").env("HOLDFAST_TLS_CA"),
    )
    .addOption(new Option("--client-cert <path>", "the client certificate (PEM)").env("HOLDFAST_CLIENT_CERT"))
    .addOption(
      new Option("--client-key <path>", "the private key of --client-cert (PEM)").env("HOLDFAST_CLIENT_KEY"),
    )
    .addOption(
      new Option("--timeout <duration>", "how long the store may take to answer")
        .env("HOLDFAST_TIMEOUT")
        .default("5s"),
    );
}

export interface Target {
  readonly url: string;
  /** The flag or variable with the URL. Absent for the default server, which may not be running. */
  readonly origin: string | undefined;
  /** The flag or variable with the token. */
  readonly tokenOrigin: string;
  readonly options: OpenStoreOptions;
  readonly timeoutMs: number;
}

/** A flag overrides the environment. Two flags, or two variables, exclude each other. */
export function resolveTarget(command: Command): Target {
  const options = command.opts<TargetOptions>();
  const timeoutMs = parseDuration("--timeout", options.timeout);
  if (timeoutMs < 10) throw usageError(`--timeout must be 10ms or more, not ${options.timeout}.`);
  const { url, origin } = urlOf(command, options);
  return {
    url,
    origin,
    tokenOrigin: tokenOriginOf(command, options),
    options: connectionOptions(options, url),
    timeoutMs,
  };
}

/** The flag or the variable that gave a value. */
function originOf(command: Command, name: "store" | "server" | "tokenFile"): string {
  const words = name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
  const isVariable = command.getOptionValueSource(name) === "env";
  return isVariable ? `HOLDFAST_${words.replace("-", "_").toUpperCase()}` : `--${words}`;
}

function urlOf(command: Command, options: TargetOptions): Pick<Target, "url" | "origin"> {
  // An empty variable counts as unset.
  const store = options.store || undefined;
  const server = options.server || undefined;
  const bothFrom = (source: string) =>
    store !== undefined &&
    server !== undefined &&
    command.getOptionValueSource("store") === source &&
    command.getOptionValueSource("server") === source;
  if (bothFrom("cli")) throw usageError("--store and --server exclude each other. Pass one of them.");
  if (bothFrom("env")) {
    throw usageError(
      "HOLDFAST_STORE and HOLDFAST_SERVER exclude each other. Set one of them, or pass a flag.",
    );
  }
  const storeWins = store !== undefined && command.getOptionValueSource("server") !== "cli";
  if (storeWins) {
    const origin = originOf(command, "store");
    if (/^memory:/i.test(store)) {
      throw usageError(
        `${origin} memory: is the memory of this process alone, so a lock there excludes no other process.`,
        "Start a server with `holdfast serve --memory`, and omit --store.",
      );
    }
    return { url: store, origin };
  }
  if (server === undefined) return { url: DEFAULT_SERVER, origin: undefined };
  const origin = originOf(command, "server");
  return { url: serverUrl(server, origin), origin };
}

/** Accepts a host, the URL that the server logs, or a store URL of a server. */
function serverUrl(text: string, origin: string): string {
  if (/^holdfasts?:\/\//i.test(text)) return text;
  if (/^https?:\/\//i.test(text)) return text.replace(/^http/i, "holdfast");
  if (/^[a-z+]+:\/\//i.test(text)) {
    throw usageError(
      `${origin} must be a host such as locks:7420, or an http, https, holdfast or holdfasts URL.`,
      "Name a store with --store instead.",
    );
  }
  return `holdfast://${text}`;
}

function connectionOptions(options: TargetOptions, url: string): OpenStoreOptions {
  // An empty variable counts as unset.
  const tlsCa = options.tlsCa || undefined;
  const clientCert = options.clientCert || undefined;
  const clientKey = options.clientKey || undefined;
  if (!/^holdfasts?:/i.test(url)) return {};
  if ((clientCert === undefined) !== (clientKey === undefined)) {
    throw usageError("--client-cert and --client-key belong together. Pass both.");
  }
  const token = tokenOf(options);
  const encrypted = /^holdfasts:/i.test(url);
  if (!encrypted && (tlsCa ?? clientCert) !== undefined) {
    throw usageError(
      `--tls-ca, --client-cert and --client-key need an encrypted connection, and ${url} has none.`,
      "Write holdfasts:// or https:// in the URL.",
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

function tokenOriginOf(command: Command, { token, tokenFile }: TargetOptions): string {
  if (token !== undefined) return "--token";
  return tokenFile ? originOf(command, "tokenFile") : "HOLDFAST_TOKEN";
}

export function readNamed(name: string, path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch (error) {
    throw usageError(
      `cannot read the file of ${name}: ${(error as Error).message}.`,
      "Check the path and its permissions.",
    );
  }
}

export function openTarget({ url, origin = "url", tokenOrigin, options }: Target): Promise<Store> {
  return openNamed(url, origin, options, tokenOrigin);
}

/** Opens a store. Errors name the flags of the URL and the token instead of the arguments of `openStore`. */
export async function openNamed(
  url: string,
  origin: string,
  options: OpenStoreOptions = {},
  tokenOrigin = "token",
): Promise<Store> {
  try {
    return await openStore(url, options);
  } catch (error) {
    if (!(error instanceof HoldfastError) || error.code !== "INVALID_ARGUMENT") throw error;
    throw invalid(error.message.replace(/^url\b/, origin).replace(/^token\b/, tokenOrigin));
  }
}

/** Runs the body with a client of the target, and closes the client. The signal aborts opening. */
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

function orAborted<T>(work: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) return work;
  return new Promise((resolve, reject) => {
    signal.addEventListener("abort", () => reject(signal.reason), { once: true });
    work.then(resolve, reject);
  });
}

/** Adds advice to the error if no store was named and the default server is not running. */
function explained(error: unknown, target: Target): unknown {
  const advice = adviceFor(target);
  if (advice === undefined || !(error instanceof HoldfastError) || error.code !== "STORE_UNAVAILABLE")
    return error;
  const message = `STORE_UNAVAILABLE: no store was named, and no server answers at ${target.url}.`;
  return new CliError(exitCodes.unavailable, message, advice);
}

/** Advice if the default server cannot be reached. */
export function adviceFor({ origin }: Target): string | undefined {
  if (origin !== undefined) return undefined;
  return (
    "Start one with `holdfast serve`, or name a store with --store redis://host:6379 or HOLDFAST_STORE, " +
    "or a server with --server host:7420 or HOLDFAST_SERVER."
  );
}
