/** `holdfast serve`: a lock server over any store. */
import { join } from "node:path";
import { type Command, Option } from "commander";
import { makeFolder, withTimeout } from "../../platform/index.ts";
import {
  type LockServer,
  type Log,
  openLog,
  type ServerLimits,
  type ServerOptions,
  startServer,
} from "../../server/index.ts";
import { HoldfastError, type Store } from "../../store/index.ts";
import { exitCodes } from "../exit-codes.ts";
import { CliError, usageError } from "../failure.ts";
import { maskedUrl } from "../masked-url.ts";
import { type Output, table, toJson } from "../output.ts";
import { type Configuration, loadConfiguration } from "../serve/configuration.ts";
import {
  flagOf,
  limitNames,
  limitSetting,
  type Setting,
  settings,
  variableOf,
} from "../serve/setting-table.ts";
import { writeValue } from "../serve/setting-values.ts";
import { welcome } from "../serve/welcome.ts";
import { stopSignal } from "../stop-signal.ts";
import { openNamed, readNamed } from "../target.ts";

interface ServeOptions {
  readonly config?: string;
  readonly printConfig?: true;
  readonly json?: true;
  readonly welcome?: true;
}

const FIRST_ANSWER_MS = 2_000;

export function configureServe(command: Command, output: Output): void {
  command
    .description(
      "Runs a lock server over a store: by default over files in a folder, which survive a restart. By default it listens on this " +
        "machine only. SIGTERM and Ctrl-C stop it once open calls have ended; a second signal stops it at once. SIGHUP reads the " +
        "token file again.",
    )
    .addOption(new Option("--config <path>", "a configuration file, YAML or JSON").env("HOLDFAST_CONFIG"))
    .option("--print-config", "print every setting and where it comes from, and do not start")
    .option("--json", "with --print-config: one JSON object")
    .option("--welcome", "print commands to try, once it listens");
  for (const setting of settings) {
    if (setting.name === "limits.maxMessageBytes") command.optionsGroup("Limits:");
    command.addOption(optionOf(setting));
  }
  command
    .addHelpText(
      "after",
      `
Each setting also has an environment variable and a key in the configuration file: --tls-cert is HOLDFAST_TLS_CERT and
"tls.cert". A flag overrides the environment; the environment overrides the file.

Examples:
  holdfast serve
  holdfast serve --store redis://localhost:6379 --port 7421
  holdfast serve --config /etc/holdfast.yaml --print-config
  holdfast serve --address 0.0.0.0 --tokens tokens.json --tls-cert server.crt --tls-key server.key`,
    )
    .action(async (options: ServeOptions) => {
      const flags = new Map(settings.map(({ name }) => [name, command.getOptionValue(attributeOf(name))]));
      const configuration = loadConfiguration({ flags, environment: process.env, file: options.config });
      if (options.printConfig) printConfiguration(output, configuration, options.json === true);
      else await serve(configuration, options.welcome === true, output);
    });
}

/** Flags have no default or variable in commander, since the configuration resolves them together with the file. */
function optionOf(setting: Setting): Option {
  const usual = setting.default === undefined ? "" : ` (default: ${writeValue(setting, setting.default)})`;
  const argument = setting.kind === "switch" ? "" : ` <${argumentOf(setting)}>`;
  const option = new Option(`${flagOf(setting)}${argument}`, `${setting.help}${usual}`);
  return setting.choices === undefined ? option : option.choices(setting.choices);
}

function argumentOf({ name, kind }: Setting): string {
  if (kind === "choice") return "level";
  if (name === "store") return "url";
  return { text: "host", path: "path", integer: "number", duration: "duration", switch: "" }[kind];
}

/** The name of a flag's value in commander. */
function attributeOf(name: string): string {
  return name.replace(/^limits\./, "").replace(/\.([a-z])/g, (_, letter: string) => letter.toUpperCase());
}

function printConfiguration(output: Output, configuration: Configuration, json: boolean): void {
  const rows = [...configuration.values()].map(({ setting, value, origin }) => {
    const text = value === undefined ? null : maskedUrl(writeValue(setting, value));
    return {
      name: setting.name,
      value: text,
      from: origin,
      flag: flagOf(setting),
      variable: variableOf(setting),
    };
  });
  if (json) {
    output.line(toJson({ settings: rows }));
    return;
  }
  const cells = rows.map(({ name, value, from }) => [name, value ?? "-", from]);
  for (const line of table(output, ["SETTING", "VALUE", "FROM"], cells)) output.line(line);
}

async function serve(configuration: Configuration, welcoming: boolean, output: Output): Promise<void> {
  const log = openLog(configuration.get("logLevel")?.value as string | undefined);
  try {
    await serveLogged(configuration, log.logger, welcoming, output);
  } finally {
    await log.close();
  }
}

async function serveLogged(
  configuration: Configuration,
  logger: Log["logger"],
  welcoming: boolean,
  output: Output,
): Promise<void> {
  // Before the store is open, so that a signal closes it in order.
  const stop = stopSignal(["SIGINT", "SIGTERM"]);
  const url = storeUrl(configuration);
  const store = await openNamed(url, configuration.get("store")?.origin ?? "url");
  let server: LockServer | undefined;
  process.on("SIGHUP", () => void server?.reloadTokens());
  try {
    await firstAnswer(store, (error) =>
      logger.warn({ code: error.code }, `${error.message} The server starts anyway.`),
    );
    server = await start({ ...serverOptions(configuration), store, logger, closeStore: true });
  } catch (error) {
    await store.close();
    throw error;
  }
  if (welcoming) output.line(welcome(server.url, maskedUrl(url)));
  if (!stop.signal.aborted) await new Promise((resolve) => stop.signal.addEventListener("abort", resolve));
  await server.stop({ graceMs: configuration.get("grace")?.value as number });
}

function storeUrl(configuration: Configuration): string {
  const value = (name: string) => configuration.get(name)?.value;
  if (value("memory") === true) return "memory:";
  const store = value("store");
  if (typeof store === "string") {
    if (/^holdfasts?:/i.test(store)) {
      const { origin } = configuration.get("store") ?? {};
      throw usageError(
        `${origin} names a lock server: ${maskedUrl(store)}.`,
        "Name a store instead, such as redis://localhost:6379.",
      );
    }
    return store;
  }
  const folder = String(value("data"));
  try {
    makeFolder(folder);
  } catch (error) {
    throw usageError(
      `cannot make the data folder: ${(error as Error).message}.`,
      "Name another folder with --data.",
    );
  }
  return `file:${join(folder, "locks").split("/").map(encodeURIComponent).join("/")}`;
}

function serverOptions(configuration: Configuration): Omit<ServerOptions, "store"> {
  const value = <T>(name: string) => configuration.get(name)?.value as T;
  const tokens = value<string | undefined>("tokens");
  const hosts = value<string | undefined>("hosts");
  const tls = tlsOptions(configuration);
  return {
    host: value<string>("address"),
    port: value<number>("port"),
    insecure: value<boolean | undefined>("insecure") === true,
    auditClaims: value<boolean | undefined>("auditClaims") === true,
    limits: Object.fromEntries(limitNames.map((name) => [name, value(limitSetting(name))])) as ServerLimits,
    ...(tokens !== undefined && { tokens }),
    ...(hosts !== undefined && { hosts: hosts.split(",").map((name) => name.trim()) }),
    ...(tls !== undefined && { tls }),
  };
}

function tlsOptions(configuration: Configuration): ServerOptions["tls"] {
  const [cert, key, clientCa] = ["tls.cert", "tls.key", "tls.clientCa"].map((name) => {
    const { value, origin } = configuration.get(name) ?? {};
    return typeof value === "string" ? readNamed(origin ?? name, value) : undefined;
  });
  if (cert === undefined && key === undefined && clientCa === undefined) return undefined;
  if (cert === undefined || key === undefined) {
    throw usageError(
      "TLS needs both --tls-cert and --tls-key.",
      "Pass both; --tls-client-ca is optional beside them.",
    );
  }
  return { cert, key, ...(clientCa !== undefined && { clientCa }) };
}

/** Fails for a wrong password or a damaged file. The server starts in spite of an outage, which may end soon. */
async function firstAnswer(store: Store, onOutage: (error: HoldfastError) => void): Promise<void> {
  const look = store.look({ prefix: "", limit: 1, maxClaims: 0 });
  try {
    await withTimeout(FIRST_ANSWER_MS, look, () => {
      const message = `The store did not answer within ${FIRST_ANSWER_MS} ms.`;
      throw new HoldfastError("STORE_UNAVAILABLE", message);
    });
  } catch (error) {
    if (!(error instanceof HoldfastError) || !error.retryable) throw error;
    onOutage(error);
  }
}

async function start(options: ServerOptions): Promise<LockServer> {
  try {
    return await startServer(options);
  } catch (error) {
    if (error instanceof HoldfastError) throw error;
    const { code, message } = error as NodeJS.ErrnoException;
    if (code === "EADDRINUSE") {
      throw new CliError(
        exitCodes.failure,
        `another process already listens on ${options.host}:${options.port}.`,
        "Stop that process, or pass another --port. --port 0 takes any free port.",
      );
    }
    if (code === "ENOENT" || code === "EACCES" || code === "EADDRNOTAVAIL" || code?.startsWith("ERR_OSSL")) {
      throw usageError(
        `the server cannot start: ${message}.`,
        "Check --address, and the files of --tokens, --tls-cert, --tls-key and --tls-client-ca.",
      );
    }
    throw error;
  }
}
