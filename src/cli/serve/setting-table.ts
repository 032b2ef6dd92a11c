/** The settings of `holdfast serve`. Flags, variables, keys of the configuration file, help and checks come from this table. */
import { limitRanges, type ServerLimits } from "../../server/index.ts";

export type SettingKind = "text" | "path" | "integer" | "duration" | "switch" | "choice";

export interface Setting {
  /** The key in the configuration file; a dot leads into a section. */
  readonly name: string;
  readonly kind: SettingKind;
  readonly help: string;
  /** In milliseconds for a duration. */
  readonly default?: string | number | boolean;
  /** For integers and durations. */
  readonly min?: number;
  readonly max?: number;
  readonly choices?: readonly string[];
}

export const limitNames = Object.keys(limitRanges) as (keyof ServerLimits)[];

export const DEFAULT_DATA = "./holdfast-data";

const logLevels = ["trace", "debug", "info", "warn", "error", "fatal", "silent"];

/** `slowReaderMs` is `limits.slowReader`, because settings write durations with their unit. */
export function limitSetting(name: keyof ServerLimits): string {
  return `limits.${name.replace(/Ms$/, "")}`;
}

export const settings: readonly Setting[] = [
  { name: "store", kind: "text", help: "the URL of the store, such as redis://localhost:6379" },
  {
    name: "data",
    kind: "path",
    help: "the folder for locks, if no other store is set",
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
    const { default: usual, min, max, help } = limitRanges[name];
    const kind = name.endsWith("Ms") ? "duration" : "integer";
    return { name: limitSetting(name), kind, help, default: usual, min, max };
  }),
];

/** `tls.clientCa` is `--tls-client-ca`; limits omit their section. */
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
