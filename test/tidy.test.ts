/** Keeps the tree tidy: what may import what, how files are named, and that everything public is documented. */
import { existsSync } from "node:fs";
import { dirname, join, posix } from "node:path";
import { describe, expect, test } from "vitest";
import { documents, filesBelow, read, root } from "./source-tree.ts";

/** Files that may be longer than MAX_LINES, each with the length at which to think again. */
const longFiles: Readonly<Record<string, number>> = {
  // One function of Lua cannot be divided over files.
  "src/stores/redis/script-rules.ts": 500,
};

const MAX_LINES = 400;

/** A decision about a part that is being replaced. */
const longDecisions = /\/0023-/;

/** The rooms that every store builds on. */
const base = ["src/platform", "src/store", "src/record"];
/** Stores that are drivers of the compare-and-swap store. */
const overCas = { folders: [...base, "src/stores/cas"], packages: [] };
/** The folders that code on top of the client uses. */
const application = [...base, "src/client", "src/coordination"];

/** What each folder of src/ may import besides itself and Node: the `index.ts` of these folders, and these packages. */
const mayImport: Readonly<Record<string, { folders: readonly string[]; packages: readonly string[] }>> = {
  "src/platform": { folders: [], packages: [] },
  "src/store": { folders: ["src/platform"], packages: [] },
  "src/record": { folders: ["src/store"], packages: [] },
  // `locks.schedule` and `locks.election` are verbs of the client.
  "src/client": { folders: [...base, "src/coordination"], packages: [] },
  // Croner knows which moments a cron pattern names.
  "src/coordination": { folders: [...base, "src/client"], packages: ["croner"] },
  "src/stores/*": { folders: base, packages: [] },
  // Redlock is made of Redis stores.
  "src/stores/redlock": { folders: [...base, "src/stores/redis"], packages: [] },
  // Its thread loads LMDB when it is first used.
  "src/stores/file": { folders: overCas.folders, packages: ["lmdb"] },
  "src/stores/postgres": overCas,
  "src/stores/mysql": overCas,
  "src/stores/mongodb": overCas,
  "src/stores/etcd": overCas,
  // Clients are imported when a URL asks for them.
  "src/open": {
    folders: [
      ...base,
      "src/stores/*",
      ...["file", "postgres", "mysql", "mongodb", "etcd", "remote"].map((name) => `src/stores/${name}`),
    ],
    packages: ["ioredis", "pg", "mysql2", "mongodb", "etcd3"],
  },
  // Fenced writes go through the Redis clients that the store takes.
  "src/fencing": { folders: [...application, "src/stores/redis"], packages: [] },
  // The remote store and the server meet in the protocol.
  "src/protocol": { folders: base, packages: ["@bufbuild/protobuf"] },
  "src/stores/remote": { folders: [...base, "src/protocol"], packages: [] },
  "src/metrics": { folders: [], packages: [] },
  "src/integrations/prometheus": { folders: [...application, "src/metrics"], packages: ["prom-client"] },
  "src/integrations/otel": { folders: [...application, "src/metrics"], packages: ["@opentelemetry/api"] },
  // Shared by the integrations of web frameworks.
  "src/integrations/frameworks": { folders: application, packages: [] },
  "src/integrations/nestjs": {
    folders: [...application, "src/integrations/frameworks"],
    packages: ["@nestjs/common"],
  },
  "src/integrations/fastify": {
    folders: [...application, "src/integrations/frameworks"],
    packages: ["fastify"],
  },
  // Its thread opens a store of its own, by a URL.
  "src/integrations/thread": { folders: [...application, "src/open"], packages: [] },
  "src/server": {
    folders: [...application, "src/metrics", "src/protocol"],
    packages: ["@connectrpc/connect", "@connectrpc/connect-node", "pino", "prom-client"],
  },
  // The command joins the server and the client. The packages of the server are imported when `serve` starts.
  "src/cli": {
    folders: [...application, "src/open", "src/server"],
    packages: ["commander", "pino", "yaml"],
  },
  "src/testing": { folders: [...application, "src/stores/*"], packages: [] },
  src: { folders: [...application, "src/stores/*"], packages: [] },
};

const files = filesBelow("");
/** Made from the .proto files, by a tool that has a style of its own. */
const isGenerated = (path: string) => path.startsWith("src/protocol/gen/");
const sources = files.filter((path) => !isGenerated(path) && /^src\/.*\.[jt]s$/.test(path));
const texts = files.filter((path) => !/\.(png|ico|woff2?|gif|jpg)$/.test(path));
const packageJson = JSON.parse(read("package.json")) as {
  files: string[];
  bin?: Record<string, string>;
  exports: Record<string, string | Record<string, string>>;
};

describe("imports", () => {
  test.each(sources)("%s imports only what its folder may", (path) => {
    const wrong = importsOf(path).filter((specifier) => !isAllowed(path, specifier));
    expect(wrong).toEqual([]);
  });

  test("the client imports no store, and a store no other store", () => {
    // The rules above say so; this says that they do.
    expect(isAllowed("src/client/locks.ts", "../stores/memory/index.ts")).toBe(false);
    expect(isAllowed("src/client/locks.ts", "redis")).toBe(false);
    expect(isAllowed("src/record/record.ts", "../client/index.ts")).toBe(false);
    expect(isAllowed("src/stores/redis/index.ts", "../memory/index.ts")).toBe(false);
    expect(isAllowed("src/stores/redis/index.ts", "../../record/record.ts")).toBe(false);
    expect(isAllowed("src/stores/redis/index.ts", "../../record/index.ts")).toBe(true);
    expect(isAllowed("src/stores/redlock/index.ts", "../redis/index.ts")).toBe(true);
    expect(isAllowed("src/stores/redlock/index.ts", "../redis/batch.ts")).toBe(false);
    expect(isAllowed("src/stores/redlock/index.ts", "../memory/index.ts")).toBe(false);
    expect(isAllowed("src/stores/postgres/index.ts", "../cas/index.ts")).toBe(true);
    expect(isAllowed("src/stores/redis/index.ts", "../cas/index.ts")).toBe(false);
    expect(isAllowed("src/integrations/otel/index.ts", "../prometheus/index.ts")).toBe(false);
    expect(isAllowed("src/testing/contract.ts", "../client/index.ts")).toBe(true);
    expect(isAllowed("src/testing/contract.ts", "../stores/memory/memory-store.ts")).toBe(false);
  });

  test("every part of src/ lists what it offers in an index file", () => {
    const folders = new Set(sources.map(folderOf));
    const isListed = (folder: string) => sources.includes(indexOf(folder));
    expect([...folders].filter((folder) => !isListed(folder))).toEqual([]);
  });
});

describe("files", () => {
  test("are named in kebab-case, for what they are", () => {
    const known = /^(README|CHANGELOG|CONTRIBUTING|SECURITY)\.md$|^LICENSE$|^Dockerfile(\.dockerignore)?$/;
    const kebab = /^\.?[a-z0-9]+(-[a-z0-9]+)*(\.[a-z0-9]+(-[a-z0-9]+)*)*$/;
    const parts = files.filter((path) => !isGenerated(path)).flatMap((path) => path.split("/"));
    expect(parts.filter((part) => !kebab.test(part) && !known.test(part))).toEqual([]);
  });

  test("no file or folder is a drawer for everything", () => {
    expect(files.filter((path) => /(^|\/)(utils?|helpers?|common|misc)(\.|\/)/.test(path))).toEqual([]);
  });

  test("sources are short enough to read at a sitting", () => {
    const long = sources.filter((path) => read(path).split("\n").length > (longFiles[path] ?? MAX_LINES) + 1);
    expect(long).toEqual([]);
  });

  test("what tests that share a process import has no hooks, which would be called for the first of them alone", () => {
    const isShared = (path: string) => /^test\/.*\.ts$/.test(path) && !/\.test\.ts$|^test\/cli\//.test(path);
    const hook = /^(before|after)(All|Each)\(|^vi\.setConfig\(/m;
    expect(files.filter((path) => isShared(path) && hook.test(read(path)))).toEqual([]);
    expect(hook.test(read("test/cli/command.ts"))).toBe(true);
  });

  test("nothing is left to be done later", () => {
    // Written so that it does not find itself.
    const marker = /\bTO(?=DO\b)|\bFIX(?=ME\b)/;
    expect(texts.filter((path) => marker.test(read(path)))).toEqual([]);
  });

  test("nothing names a path of one machine or a package registry", () => {
    const machinePath = /(?<![\w.*)}-])\/(home|Users|root|work)\/|[A-Z]:\\Users/;
    const registry = /\bregistry\.\w+\.\w+|"resolved"\s*:/;
    expect(texts.filter((path) => machinePath.test(read(path)))).toEqual([]);
    expect(texts.filter((path) => registry.test(read(path)))).toEqual([]);
  });
});

describe("the package", () => {
  const targets = Object.values(packageJson.exports)
    .flatMap((target) => (typeof target === "string" ? [target] : Object.values(target)))
    .concat(Object.values(packageJson.bin ?? {}))
    .filter((target) => target !== "./package.json");

  test("exports only what the build makes", () => {
    const missing = targets.filter((target) => {
      const source = target.replace(/^\.\/dist\//, "src/").replace(/(\.d)?\.[jt]s$/, ".ts");
      return !target.startsWith("./dist/") || !sources.includes(source);
    });
    expect(missing).toEqual([]);
  });

  test("is known to the compiler under every name it exports", () => {
    const names = Object.keys(packageJson.exports).filter((name) => name !== "./package.json");
    const paths = Object.keys(JSON.parse(read("tsconfig.json")).compilerOptions.paths);
    expect(paths.sort()).toEqual(names.map((name) => name.replace(/^\./, "holdfast")).sort());
  });

  test("has a lockfile that npm ci accepts on every platform", () => {
    // Where this fails, `node scripts/complete-lockfile.js` mends it.
    const { packages } = JSON.parse(read("package-lock.json")) as {
      packages: Record<string, { optionalDependencies?: Record<string, string> }>;
    };
    const asked = Object.values(packages).flatMap((entry) => Object.keys(entry.optionalDependencies ?? {}));
    const locked = Object.keys(packages).map((path) => path.slice(path.lastIndexOf("node_modules/") + 13));
    expect(asked.filter((name) => !locked.includes(name))).toEqual([]);
  });
});

describe("documentation", () => {
  const prose = documents().map(read).join("\n");
  const entries = Object.values(packageJson.exports)
    .flatMap((target) => (typeof target === "string" ? [] : [target["default"] ?? ""]))
    .map((target) => target.replace(/^\.\/dist\//, "src/").replace(/\.js$/, ".ts"));

  test.each(entries)("mentions everything that %s exports", (entry) => {
    const names = exportsOf(entry);
    expect(names).not.toEqual([]);
    expect(names.filter((name) => !new RegExp(`\`[^\`\n]*\\b${name}\\b[^\`\n]*\``).test(prose))).toEqual([]);
  });

  test.each([
    ["ErrorCode", "src/store/errors.ts", /^### `?(\w+)`?$/gm],
    ["LossReason", "src/store/errors.ts", /^\| `([\w-]+)` +\|/gm],
    ["HoldfastWarning", "src/client/options.ts", /^\| `([\w-]+)` +\|/gm],
  ])("docs/errors.md explains every %s", (type, path, entry) => {
    const documented = [...read("docs/errors.md").matchAll(entry)].map(([, code]) => code);
    const declared = wordsOf(type, read(path));
    expect(declared).not.toEqual([]);
    expect(declared.filter((code) => !documented.includes(code))).toEqual([]);
  });

  test("says what to do about every error", () => {
    const sections = read("docs/errors.md").split(/^### /m).slice(1);
    const silent = sections.filter((section) => !section.includes("**What to do:**"));
    expect(silent.map((section) => section.split("\n")[0])).toEqual([]);
  });

  test("has a page with the same headings for every store", () => {
    const stores = new Set(sources.flatMap((path) => /^src\/stores\/([^/]+)\//.exec(path)?.[1] ?? []));
    const all = [
      "Guarantees",
      "Usage",
      "How it works",
      "Options",
      "Required rights",
      "Limits",
      "Tested versions",
    ];
    for (const store of stores) {
      const headings = [...read(`docs/stores/${store}.md`).matchAll(/^## (.*)$/gm)].map(([, text]) => text);
      // Rights and versions are those of what is below it, which is its driver's business.
      const expected = store === "cas" ? all.filter((each) => !/rights|versions/.test(each)) : all;
      expect(headings, store).toEqual(expected);
    }
  });

  describe("of decisions", () => {
    const decisions = documents()
      .filter((path) => path.startsWith("docs/decisions/"))
      .filter((path) => !longDecisions.test(path));

    test.each(decisions)("%s has its headings and at most 300 words, and names files that exist", (path) => {
      const text = read(path);
      const headings = [...text.matchAll(/^## (.*)$/gm)].map(([, heading]) => heading);
      expect(headings).toEqual(["Problem", "Decision", "Alternatives", "Consequences"]);
      expect(text.trim().split(/\s+/).length).toBeLessThanOrEqual(300);
      const named = [...text.matchAll(/`((?:src|test|bench)\/[\w/.-]+\.[jt]s)`/g)].map(
        ([, file]) => file ?? "",
      );
      expect(named.filter((file) => !existsSync(join(root, file)))).toEqual([]);
    });
  });

  test("exists where a source refers to it", () => {
    const named = sources.flatMap((path) =>
      [...read(path).matchAll(/\bdocs\/[\w/-]+\.md\b/g)].map(([doc]) => doc),
    );
    expect(named.filter((doc) => !existsSync(join(root, doc)))).toEqual([]);
  });
});

/** What a file imports or re-exports, statically or not. */
function importsOf(path: string): string[] {
  const code = read(path).replace(/^\s*(\*|\/\/|\/\*).*$/gm, "");
  const pattern = /(?<!\.)\b(?:from|import)\s*\(?\s*"([^"]+)"/g;
  return [...code.matchAll(pattern)].map(([, specifier]) => specifier ?? "");
}

function isAllowed(path: string, specifier: string): boolean {
  if (specifier.startsWith("node:")) return true;
  const folder = folderOf(path);
  const rules = mayImport[generic(folder)];
  if (rules === undefined) return false;
  if (!specifier.startsWith(".")) {
    return rules.packages.some((name) => specifier === name || specifier.startsWith(`${name}/`));
  }
  const target = posix.join(dirname(path), specifier);
  if (folderOf(target) === folder) return true;
  const named = [folderOf(target), generic(folderOf(target))];
  const isOffered = target === indexOf(folderOf(target));
  return isOffered && rules.folders.some((allowed) => named.includes(allowed));
}

function indexOf(folder: string): string {
  return `${folder}/index.ts`;
}

/** The part of src/ that a file belongs to: `src/client`, `src/stores/memory`, or `src` itself. */
function folderOf(path: string): string {
  return /^src\/(stores\/[^/]+|integrations\/[^/]+|[^/]+)(?=\/)/.exec(path)?.[0] ?? "src";
}

function generic(folder: string): string {
  return folder.startsWith("src/stores/") && mayImport[folder] === undefined ? "src/stores/*" : folder;
}

/** The names that an index file exports, types included. */
function exportsOf(path: string): string[] {
  const code = read(path);
  const listed = [...code.matchAll(/export (?:type )?\{([^}]*)\}/g)].flatMap(([, names = ""]) =>
    names.split(",").map((name) =>
      name
        .replace(/^\s*type\s/, "")
        .replace(/.*\sas\s/, "")
        .trim(),
    ),
  );
  const declared = [...code.matchAll(/^export (?:async )?(?:function|const|class|interface|type) (\w+)/gm)];
  return [...listed, ...declared.map(([, name = ""]) => name)].filter((name) => name !== "");
}

/** The words of a union, or of a `code` field, in the declaration of a type. */
function wordsOf(type: string, code: string): string[] {
  const start = code.search(new RegExp(`export (type|interface) ${type}\\b`));
  const declaration = code.slice(start).split(/;\s*\n/)[0] ?? "";
  return [...declaration.matchAll(/"([\w-]+)"/g)].map(([, word]) => word ?? "");
}
