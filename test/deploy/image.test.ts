/** The image: without a container engine, what can be seen of it is what goes in and what is done with that. */
import { execFile, execFileSync } from "node:child_process";
import { cpSync, existsSync, mkdtempSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { memoryStore } from "holdfast";
import { expect, onTestFinished, test } from "vitest";
import { startLockServer } from "../server/lock-server.ts";
import { read, root } from "../source-tree.ts";

/** The steps of the Dockerfile, each as one line. */
const steps = read("deploy/Dockerfile")
  .replace(/\\\n/g, "")
  .split("\n")
  .filter((line) => /^[A-Z]+ /.test(line))
  .map((line) => {
    const [, instruction = "", rest = ""] = /^([A-Z]+)\s+(.*)$/.exec(line) ?? [];
    return { instruction, rest: rest.trim() };
  });

const argumentsOf = (wanted: string) =>
  steps.filter(({ instruction }) => instruction === wanted).map(({ rest }) => rest);

/** The sources and targets of the COPY steps. */
const copied = argumentsOf("COPY")
  .filter((rest) => !rest.startsWith("--from"))
  .map((rest) => {
    const paths = rest.split(/\s+/);
    return { sources: paths.slice(0, -1), target: paths.at(-1) ?? "" };
  });

const packageJson = JSON.parse(read("package.json")) as {
  bin?: Record<string, string>;
  scripts: Record<string, string>;
  exports: Record<string, string | { default: string }>;
};

test("everything that it copies is there, and is let into the build", () => {
  const sources = copied.flatMap((each) => each.sources);
  expect(sources).toContain("package-lock.json");
  expect(sources.filter((source) => !existsSync(join(root, source)))).toEqual([]);
  const letIn = [...read("deploy/Dockerfile.dockerignore").matchAll(/^!(.*)$/gm)].map(([, path]) => path);
  expect([...sources].sort()).toEqual([...letIn].sort());
});

test("what it copies is enough to build the package", async () => {
  const folder = mkdtempSync(join(tmpdir(), "holdfast-image-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  for (const { sources, target } of copied) {
    for (const source of sources) {
      const isFolder = !target.endsWith("/");
      cpSync(join(root, source), join(folder, target, isFolder ? "" : (source.split("/").at(-1) ?? "")), {
        recursive: true,
      });
    }
  }
  symlinkSync(join(root, "node_modules"), join(folder, "node_modules"));
  const runs = argumentsOf("RUN").flatMap((run) =>
    [...run.matchAll(/npm run ([\w-]+)/g)].map(([, name]) => name),
  );
  expect(runs).toEqual(["build"]);
  await promisify(execFile)("npm", ["run", "--silent", "build"], { cwd: folder });
  const made = Object.values(packageJson.exports).flatMap((target) =>
    typeof target === "string" ? [] : [target.default],
  );
  expect(made.filter((path) => !existsSync(join(folder, path)))).toEqual([]);
  const drivers = execFileSync(process.execPath, ["deploy/drivers.js"], { cwd: folder, encoding: "utf8" });
  expect(drivers.trim().split(" ")).toHaveLength(5);
}, 120_000);

test("it has the driver of every store that a URL can name", () => {
  const drivers = execFileSync(process.execPath, [join(root, "deploy/drivers.js")], { encoding: "utf8" });
  const asked = [...read("src/open/open-store.ts").matchAll(/import\("([^".][^"]*)"\)/g)].map(
    ([, specifier = ""]) => specifier.split("/")[0] ?? "",
  );
  expect(asked.length).toBeGreaterThan(4);
  const named = drivers.trim().split(" ");
  for (const name of new Set(asked)) {
    expect(
      named.filter((each) => new RegExp(`^${name}@\\d+\\.\\d+\\.\\d+$`).test(each)),
      name,
    ).toHaveLength(1);
  }
});

test("it runs as somebody who is not root, keeps its data in a volume, and starts the server", () => {
  const last = steps.map(({ instruction }) => instruction).lastIndexOf("FROM");
  const of = (wanted: string) =>
    steps
      .slice(last)
      .filter(({ instruction }) => instruction === wanted)
      .map(({ rest }) => rest);
  expect(of("USER")).toEqual(["node"]);
  expect(of("VOLUME")).toEqual(["/data"]);
  // The default store is a folder below the working folder.
  expect(of("WORKDIR")).toEqual(["/data"]);
  expect(of("EXPOSE")).toEqual(["7420"]);
  expect(of("CMD")).toEqual(['["serve"]']);
  const [entry] = of("ENTRYPOINT").map((rest) => JSON.parse(rest) as string[]);
  expect(entry).toEqual(["node", "/app/dist/cli/main.js"]);
  const bin = packageJson.bin?.["holdfast"]?.replace(/^\.\//, "");
  if (bin !== undefined) expect(`/app/${bin}`).toBe(entry?.[1]);
});

test("its health check tells a server that can be used from one that cannot", async () => {
  const [check] = argumentsOf("HEALTHCHECK").map(
    (rest) => JSON.parse(/CMD (.*)$/.exec(rest)?.[1] ?? "") as string[],
  );
  const store = memoryStore();
  const server = await startLockServer({ store });
  const run = async () => {
    const env = { ...process.env, HEALTH_URL: `${server.url}/readyz` };
    const running = promisify(execFile)(process.execPath, check?.slice(1) ?? [], { env });
    return running.then(
      () => 0,
      ({ code }: { code: number }) => code,
    );
  };
  expect(check?.[0]).toBe("node");
  expect(await run()).toBe(0);
  await server.stop({ graceMs: 0 });
  expect(await run()).toBe(1);
});
