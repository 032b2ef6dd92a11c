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
  maxMessageBytes: "the longest message that is read, in bytes",
  maxOperations: "the most operations in one message of a session",
  maxInFlight: "the most unanswered operations of a session",
  maxBufferedBytes: "how much a client may leave unread, in bytes",
  slowReaderMs: "how long that may last before it is cut off",
  maxKeptBytes: "the most bytes of incomplete requests and unread answers, of all calls together",
  silenceMs: "how long a connection may be silent, pings included",
  maxConnections: "the most connections",
  maxStreams: "the most calls and sessions of one connection",
  maxCalls: "the most calls and sessions of one token that are under way",
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
    help: "a folder to keep locks in, without any other store",
    default: DEFAULT_DATA,
  },
  { name: "memory", kind: "switch", help: "keep locks in memory: they end with the server" },
  { name: "address", kind: "text", help: "the address to listen on", default: "127.0.0.1" },
  {
    name: "port",
    kind: "integer",
    help: "the port to listen on; 0 is any that is free",
    default: 7_420,
    min: 0,
    max: 65_535,
  },
  { name: "tokens", kind: "path", help: "the token file: who may do what (default: everybody everything)" },
  { name: "insecure", kind: "switch", help: "listen beyond this machine without tokens" },
  {
    name: "hosts",
    kind: "text",
    help: "the names that clients reach the server by, separated by commas (default with tokens: any)",
  },
  { name: "tls.cert", kind: "path", help: "the certificate chain (PEM); encrypts connections" },
  { name: "tls.key", kind: "path", help: "its private key (PEM)" },
  {
    name: "tls.clientCa",
    kind: "path",
    help: "demand certificates of clients that this one has signed (PEM)",
  },
  { name: "logLevel", kind: "choice", help: "the least that is logged", default: "info", choices: logLevels },
  {
    name: "auditClaims",
    kind: "switch",
    help: "log who was granted, released and lost each claim",
  },
  {
    name: "grace",
    kind: "duration",
    help: "how long stopping waits for what is under way",
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
