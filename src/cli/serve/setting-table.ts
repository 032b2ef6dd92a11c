/**
 * Everything that `holdfast serve` can be told, once: flags, variables, keys of the configuration file, help, documentation and
 * checks are all made from this table.
 */
import { limitRanges, type ServerLimits } from "../../server/index.ts";

export type SettingKind = "text" | "path" | "integer" | "duration" | "switch" | "choice";

export interface Setting {
  /** The key in the configuration file; a dot leads into a section. */
  readonly name: string;
  readonly kind: SettingKind;
  readonly help: string;
  /** What it is when nobody says; milliseconds for a duration. */
  readonly default?: string | number | boolean;
  /** Of integers and durations. */
  readonly min?: number;
  readonly max?: number;
  readonly choices?: readonly string[];
}

export const DEFAULT_DATA = "./holdfast-data";

const logLevels = ["trace", "debug", "info", "warn", "error", "fatal", "silent"];

/** What each limit is called here and means. Milliseconds are durations here, so their names say no unit. */
const limitHelp: Readonly<Record<keyof ServerLimits, string>> = {
  maxMessageBytes: "the longest message that the server reads, in bytes",
  maxOperations: "the most operations in one message of a session",
  maxInFlight: "the most unanswered operations of a session",
  maxBufferedBytes: "the most bytes that a client may leave unread",
  slowReaderMs: "how long a client may leave more unread before the server cuts it off",
  maxKeptBytes:
    "the most bytes of incomplete requests and unread answers, of all calls and sessions together",
  silenceMs: "how long a connection may be silent, pings included",
  maxConnections: "the most connections",
  maxStreams: "the most calls and sessions of one connection",
  maxCalls: "the most open calls and sessions of one token",
  maxWaitingCalls: "the most calls of one token that wait for a lock",
  maxWatches: "the most watches of one token",
  maxClaims: "the most claims of one token, or of one address without tokens",
  maxWaiters: "the most claims that may wait for one key through this server",
  maxOwners: "the most clients of the library that share one session",
  maxTtlMs: "the longest ttl",
  maxWaitMs: "the longest wait of a call",
  maxKeys: "the most keys of one call of AcquireMany",
  maxInfoBytes: "the longest info, in bytes",
  maxKeyBytes: "the longest key, in bytes",
};

export const limitNames = Object.keys(limitHelp) as (keyof ServerLimits)[];

/** `slowReaderMs` is `limits.slowReader`. */
export function limitSetting(name: keyof ServerLimits): string {
  return `limits.${name.replace(/Ms$/, "")}`;
}

export const settings: readonly Setting[] = [
  { name: "store", kind: "text", help: "the URL of the store, such as redis://localhost:6379" },
  {
    name: "data",
    kind: "path",
    help: "a folder to keep locks in, without another store",
    default: DEFAULT_DATA,
  },
  { name: "memory", kind: "switch", help: "keep locks in memory; they end with the server" },
  { name: "address", kind: "text", help: "the address to listen on", default: "127.0.0.1" },
  {
    name: "port",
    kind: "integer",
    help: "the port to listen on; 0 takes any free port",
    default: 7_420,
    min: 0,
    max: 65_535,
  },
  {
    name: "tokens",
    kind: "path",
    help: "the file with tokens and their rights (default: no tokens, all callers may do everything)",
  },
  { name: "insecure", kind: "switch", help: "listen beyond this machine without tokens" },
  {
    name: "hosts",
    kind: "text",
    help: "the names under which clients reach the server, with commas between (default with tokens: any)",
  },
  { name: "tls.cert", kind: "path", help: "the certificate chain (PEM); encrypts connections" },
  { name: "tls.key", kind: "path", help: "the private key of the certificate (PEM)" },
  {
    name: "tls.clientCa",
    kind: "path",
    help: "require client certificates that this CA has signed (PEM)",
  },
  { name: "logLevel", kind: "choice", help: "the lowest level to log", default: "info", choices: logLevels },
  {
    name: "auditClaims",
    kind: "switch",
    help: "log who was granted, released and lost each claim",
  },
  {
    name: "grace",
    kind: "duration",
    help: "how long stopping waits for open calls",
    default: 10_000,
    min: 0,
    max: 3_600_000,
  },
  ...limitNames.map((name): Setting => {
    const { default: usual, min, max } = limitRanges[name];
    const kind = name.endsWith("Ms") ? "duration" : "integer";
    return { name: limitSetting(name), kind, help: limitHelp[name], default: usual, min, max };
  }),
];

/** `tls.clientCa` is `--tls-client-ca`; limits leave their section away. */
export function flagOf({ name }: Setting): string {
  return `--${kebab(name)}`;
}

/** `tls.clientCa` is `HOLDFAST_TLS_CLIENT_CA`. */
export function variableOf({ name }: Setting): string {
  return `HOLDFAST_${kebab(name).replaceAll("-", "_").toUpperCase()}`;
}

function kebab(name: string): string {
  return name
    .replace(/^limits\./, "")
    .replaceAll(".", "-")
    .replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
}

export function settingNamed(name: string): Setting | undefined {
  return settings.find((setting) => setting.name === name);
}
