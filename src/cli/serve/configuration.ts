/**
 * The settings of `holdfast serve`. A flag overrides an environment variable, which overrides the configuration file, which
 * overrides the default. Each setting keeps its origin, for errors and for `--print-config`.
 */
import { readFileSync } from "node:fs";
import { dirname, extname, resolve } from "node:path";
import { parse } from "yaml";
import { didYouMean, nearest } from "../../store/index.ts";
import { usageError } from "../failure.ts";
import { flagOf, type Setting, settingNamed, settings, variableOf } from "./setting-table.ts";
import { readValue, type Value } from "./setting-values.ts";

export type Source = "flag" | "environment" | "file" | "default";

const ranks: readonly Source[] = ["default", "file", "environment", "flag"];

export interface Effective {
  readonly setting: Setting;
  /** Absent if it is not set and has no default. */
  readonly value: Value | undefined;
  readonly source: Source;
  /** For messages: `--port`, `HOLDFAST_PORT`, `port in holdfast.yaml`. */
  readonly origin: string;
}

export type Configuration = ReadonlyMap<string, Effective>;

export interface ConfigurationSources {
  /** Values of the given flags, by the name of their setting. */
  readonly flags: ReadonlyMap<string, unknown>;
  readonly environment: NodeJS.ProcessEnv;
  /** The path of a configuration file. */
  readonly file: string | undefined;
}

export function loadConfiguration({ flags, environment, file }: ConfigurationSources): Configuration {
  refuseMisspelled(environment);
  const fromFile = file === undefined ? new Map<string, unknown>() : readConfigurationFile(file);
  const configuration = new Map<string, Effective>();
  for (const setting of settings) {
    const found = lookUp(setting, flags, environment, fromFile, file ?? "");
    const { raw, source, origin } = found;
    const value = source === "default" ? setting.default : readValue(setting, raw, origin);
    configuration.set(setting.name, {
      setting,
      value: fromFolder(setting, value, source, file),
      source,
      origin,
    });
  }
  keepOnePlace(configuration);
  return configuration;
}

function lookUp(
  setting: Setting,
  flags: ReadonlyMap<string, unknown>,
  environment: NodeJS.ProcessEnv,
  fromFile: ReadonlyMap<string, unknown>,
  file: string,
): { raw: unknown; source: Source; origin: string } {
  const variable = variableOf(setting);
  const set = environment[variable];
  if (flags.get(setting.name) !== undefined) {
    return { raw: flags.get(setting.name), source: "flag", origin: flagOf(setting) };
  }
  if (set !== undefined && set !== "" && !isServiceLink(variable, set)) {
    return { raw: set, source: "environment", origin: variable };
  }
  if (fromFile.has(setting.name)) {
    return { raw: fromFile.get(setting.name), source: "file", origin: `${setting.name} in ${file}` };
  }
  return { raw: undefined, source: "default", origin: "default" };
}

/** Kubernetes sets such variables in every pod beside a service called "holdfast". They are no settings. */
function isServiceLink(variable: string, value = ""): boolean {
  return (
    /^HOLDFAST_(SERVICE_|PORT_\d)/.test(variable) ||
    (variable === "HOLDFAST_PORT" && value.startsWith("tcp://"))
  );
}

/** Variables of the command line that are no settings of the server. */
const otherVariables = [
  "HOLDFAST_CONFIG",
  "HOLDFAST_SERVER",
  "HOLDFAST_TOKEN",
  "HOLDFAST_TOKEN_FILE",
  "HOLDFAST_TLS_CA",
  "HOLDFAST_CLIENT_CERT",
  "HOLDFAST_CLIENT_KEY",
  "HOLDFAST_TIMEOUT",
  "HOLDFAST_KEY",
  "HOLDFAST_FENCE",
  "HOLDFAST_ID",
];

/** Refuses variables whose names nearly match a setting. Others may belong to another program. */
function refuseMisspelled(environment: NodeJS.ProcessEnv): void {
  const known = settings.map(variableOf);
  for (const variable of Object.keys(environment)) {
    if (!variable.startsWith("HOLDFAST_") || known.includes(variable) || otherVariables.includes(variable))
      continue;
    const word = variable.slice("HOLDFAST_".length);
    const meant = nearest(
      word,
      known.map((name) => name.slice("HOLDFAST_".length)),
    );
    if (meant === undefined || isServiceLink(variable)) continue;
    throw usageError(`holdfast has no variable ${variable}. Did you mean HOLDFAST_${meant}?`);
  }
}

/** The settings of a file by name. Sections are flattened: `tls: { cert }` is `tls.cert`. */
function readConfigurationFile(path: string): Map<string, unknown> {
  const content = parseFile(path);
  if (content === null || content === undefined) return new Map();
  if (!isSection(content))
    throw usageError(
      `the configuration file ${path} must map names of settings to values.`,
      "Write, for instance: port: 7420",
    );
  const found = new Map<string, unknown>();
  collectSettings(content, "", path, found);
  return found;
}

function parseFile(path: string): unknown {
  let text: string;
  try {
    text = readFileSync(path, "utf8");
  } catch (error) {
    throw usageError(
      `cannot read the configuration file: ${(error as Error).message}.`,
      "Check the path in --config or HOLDFAST_CONFIG.",
    );
  }
  try {
    return extname(path) === ".json" ? JSON.parse(text) : parse(text);
  } catch (error) {
    throw usageError(
      `the configuration file ${path} is not valid ${extname(path) === ".json" ? "JSON" : "YAML"}: ${(error as Error).message.trim()}`,
    );
  }
}

function collectSettings(
  section: Record<string, unknown>,
  prefix: string,
  path: string,
  found: Map<string, unknown>,
): void {
  for (const [key, value] of Object.entries(section)) {
    const name = `${prefix}${key}`;
    if (settingNamed(name) !== undefined) {
      if (isSection(value) || Array.isArray(value))
        throw usageError(`${name} in ${path} must be a single value.`);
      found.set(name, value);
      continue;
    }
    const known = settings.map((setting) => setting.name);
    const isPrefix = known.some((other) => other.startsWith(`${name}.`));
    if (isPrefix && isSection(value)) collectSettings(value, `${name}.`, path, found);
    else if (isPrefix) throw usageError(`${name} in ${path} must be a section with settings of its own.`);
    else {
      throw usageError(
        `${path} sets ${name}, which is not a setting.${didYouMean(name, known)}`,
        "holdfast serve --print-config lists all settings.",
      );
    }
  }
}

function isSection(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Paths in a file are relative to the folder of the file. */
function fromFolder(
  setting: Setting,
  value: Value | undefined,
  source: Source,
  file: string | undefined,
): Value | undefined {
  if (source !== "file" || file === undefined || typeof value !== "string") return value;
  if (setting.kind === "path") return resolve(dirname(file), value);
  const [, path] = (setting.name === "store" && /^file:(?!\/)(.+)$/.exec(value)) || [];
  return path === undefined ? value : `file:${resolve(dirname(file), path)}`;
}

/** The settings for the store. The one from the strongest source counts; two from one source exclude each other. */
const places = ["store", "data", "memory"] as const;

function keepOnePlace(configuration: Map<string, Effective>): void {
  const named = places
    .map((name) => configuration.get(name))
    .filter((place) => place !== undefined)
    .filter(({ value, source }) => source !== "default" && value !== false)
    .sort((a, b) => ranks.indexOf(b.source) - ranks.indexOf(a.source));
  const [first, second] = named;
  if (first === undefined) return;
  if (second?.source === first.source) {
    throw usageError(
      `${first.origin} and ${second.origin} exclude each other, because a server has one store.`,
      "Set one of them.",
    );
  }
  for (const name of places) {
    const place = configuration.get(name);
    if (place === undefined || place === first) continue;
    configuration.set(name, {
      ...place,
      value: undefined,
      source: "default",
      origin: `not used: ${first.origin}`,
    });
  }
}
