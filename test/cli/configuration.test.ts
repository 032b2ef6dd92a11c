/** Where settings of the server come from, and what is said when they are wrong. */
import { mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe, expect, test } from "vitest";
import { loadConfiguration } from "../../src/cli/serve/configuration.ts";
import { flagOf, type Setting, settings, variableOf } from "../../src/cli/serve/setting-table.ts";
import { writeValue } from "../../src/cli/serve/setting-values.ts";
import { read } from "../source-tree.ts";
import { temporaryFolder } from "./command.ts";

interface Told {
  readonly flags?: Record<string, unknown>;
  readonly environment?: NodeJS.ProcessEnv;
  readonly file?: string;
  readonly fileName?: string;
}

function load({ flags = {}, environment = {}, file, fileName = "holdfast.yaml" }: Told) {
  const path = join(temporaryFolder(), fileName);
  mkdirSync(dirname(path), { recursive: true });
  if (file !== undefined) writeFileSync(path, file);
  const configuration = loadConfiguration({
    flags: new Map(Object.entries(flags)),
    environment,
    file: file === undefined ? undefined : path,
  });
  const of = (name: string) => configuration.get(name)!;
  return { path, of, value: (name: string) => of(name).value };
}

describe("precedence", () => {
  const flags = { port: "1" };
  const environment = { HOLDFAST_PORT: "2" };
  const file = "port: 3";

  test("a flag wins over the environment, that over the file, that over the default", () => {
    expect(load({ flags, environment, file }).of("port")).toMatchObject({
      value: 1,
      source: "flag",
      origin: "--port",
    });
    expect(load({ environment, file }).of("port")).toMatchObject({ value: 2, origin: "HOLDFAST_PORT" });
    const { of, path } = load({ file });
    expect(of("port")).toMatchObject({ value: 3, origin: `port in ${path}` });
    expect(load({}).of("port")).toMatchObject({ value: 7_420, source: "default" });
  });

  test("an empty variable is none", () => {
    expect(load({ environment: { HOLDFAST_PORT: "" } }).value("port")).toBe(7_420);
  });

  test("what Kubernetes sets beside a service called holdfast is not meant for the server", () => {
    const links = {
      HOLDFAST_PORT: "tcp://10.0.0.7:7420",
      HOLDFAST_SERVICE_HOST: "10.0.0.7",
      HOLDFAST_PORT_7420_TCP: "tcp://10.0.0.7:7420",
    };
    expect(load({ environment: links }).value("port")).toBe(7_420);
  });
});

describe("the configuration file", () => {
  test.each([
    ["holdfast.yaml", "tls:\n  cert: a.crt\nlimits:\n  silence: 1m\n  maxClaims: 7\ninsecure: true\n"],
    [
      "holdfast.json",
      '{ "tls": { "cert": "a.crt" }, "limits": { "silence": "1m", "maxClaims": 7 }, "insecure": true }',
    ],
  ])("%s has sections, durations and switches", (fileName, file) => {
    const { value, path } = load({ file, fileName });
    expect(value("tls.cert")).toBe(join(dirname(path), "a.crt"));
    expect(value("limits.silence")).toBe(60_000);
    expect(value("limits.maxClaims")).toBe(7);
    expect(value("insecure")).toBe(true);
  });

  test("may be empty", () => expect(load({ file: "# nothing yet\n" }).value("port")).toBe(7_420));

  test("names paths from where it is", () => {
    const { value, path } = load({
      file: "store: file:locks\ntokens: ../tokens.json\n",
      fileName: "etc/holdfast.yaml",
    });
    expect(value("store")).toBe(`file:${join(dirname(path), "locks")}`);
    expect(value("tokens")).toBe(join(dirname(path), "../tokens.json"));
  });

  test.each([
    ["prot: 1", "sets prot, which is not a setting.", "Did you mean port?"],
    ["tls:\n  certt: x", "sets tls.certt, which", "Did you mean tls.cert?"],
    ["limits:\n  maxClaim: 1", "sets limits.maxClaim, which", "Did you mean limits.maxClaims?"],
    ["zzzzzz: 1", "holdfast.yaml sets zzzzzz, which is not a setting."],
    ["port: x", "port in", "must be a whole number"],
    ["port:", "port in", "must be a whole number, not nothing"],
    ["port: [1]", "port in", "must be a single value"],
    ["tls: yes", "tls in", "must be a section"],
    ["limits:\n  silence: 30", "limits.silence in", "must be a duration such as 30s, not 30"],
    ["- port", "must map names of settings to values", "the configuration file "],
    ["port: 1\nport: 2", "is not valid YAML", "Map keys must be unique"],
    ["port: {", "is not valid YAML", "the configuration file "],
  ])("%j is refused, and the message says where", (file, ...expected) => {
    for (const part of expected) expect(() => load({ file })).toThrow(part);
  });

  test("that is missing is told", () => {
    const file = join(temporaryFolder(), "none.yaml");
    const load = () => loadConfiguration({ flags: new Map(), environment: {}, file });
    expect(load).toThrow("cannot read the configuration file: ENOENT");
  });
});

describe("values", () => {
  test.each([
    [{ flags: { port: "70000" } }, "--port must be from 0 to 65535, not 70000."],
    [{ flags: { "limits.silence": "10" } }, "--silence must be a duration"],
    [{ flags: { "limits.silence": "10ms" } }, "--silence must be from 100ms to 1h, not 10ms."],
    [{ environment: { HOLDFAST_INSECURE: "yes" } }, 'HOLDFAST_INSECURE must be true or false, not "yes".'],
    [{ environment: { HOLDFAST_LOG_LEVEL: "loud" } }, "HOLDFAST_LOG_LEVEL must be one of trace, debug"],
    [
      { environment: { HOLDFAST_PROT: "1" } },
      "holdfast has no variable HOLDFAST_PROT. Did you mean HOLDFAST_PORT?",
    ],
  ] as const)("%j is refused: %s", (told, message) => {
    expect(() => load(told)).toThrow(message);
  });

  test("variables of others are left alone", () => {
    const environment = { HOLDFAST_KEY: "k", HOLDFAST_TOKEN: "t", HOLDFAST_DEPLOYMENT_COLOUR: "blue" };
    expect(load({ environment }).value("port")).toBe(7_420);
  });
});

describe("where locks are kept", () => {
  test("is a folder unless somebody says otherwise", () => {
    expect(load({}).value("data")).toBe("./holdfast-data");
    expect(load({}).value("store")).toBeUndefined();
  });

  test("is what the strongest source says", () => {
    const { value, of } = load({ flags: { memory: true }, environment: { HOLDFAST_STORE: "redis://r" } });
    expect(value("memory")).toBe(true);
    expect(value("store")).toBeUndefined();
    expect(of("store").origin).toBe("not used: --memory");
    expect(
      load({ flags: { data: "d" }, environment: { HOLDFAST_STORE: "redis://r" } }).value("store"),
    ).toBeUndefined();
    expect(
      load({ environment: { HOLDFAST_STORE: "redis://r" }, file: "data: d" }).value("data"),
    ).toBeUndefined();
  });

  test("is one place", () => {
    expect(() => load({ flags: { memory: true, store: "redis://r" } })).toThrow(
      "--store and --memory exclude each other",
    );
    expect(() => load({ file: "memory: true\ndata: d" })).toThrow("exclude each other");
    expect(load({ file: "memory: false\ndata: d" }).value("data")).toMatch(/d$/);
  });
});

describe("docs/configuration.md", () => {
  const rows = [
    ...read("docs/configuration.md").matchAll(
      /^\| `([\w.]+)` \| `(--[\w-]+)` \| `(\w+)` \| (.*) \| (.*) \|$/gm,
    ),
  ];

  test("lists every setting as it is", () => {
    const documented = rows.map(([, name, flag, variable, , usual]) => ({ name, flag, variable, usual }));
    expect(documented).toEqual(
      settings.map((setting) => ({
        name: setting.name,
        flag: flagOf(setting),
        variable: variableOf(setting),
        usual: setting.default === undefined ? "" : `\`${writeValue(setting, setting.default)}\``,
      })),
    );
  });

  test("says what each can be", () => {
    const meanings = new Map(rows.map(([, name, , , meaning]) => [name, meaning]));
    for (const setting of settings)
      expect(meanings.get(setting.name), setting.name).toContain(rangeOf(setting));
  });

  function rangeOf(setting: Setting): string {
    const { kind, min, max, choices } = setting;
    if (choices !== undefined) return choices.map((choice) => `\`${choice}\``).join(", ");
    if (min === undefined || max === undefined) return kind === "switch" ? "`true` or `false`" : "";
    return `\`${writeValue(setting, min)}\` to \`${writeValue(setting, max)}\``;
  }
});
