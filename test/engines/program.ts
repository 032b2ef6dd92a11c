/** Finds the programs that the tests start, and installs them where that is possible. */
import { execFileSync } from "node:child_process";
import { join } from "node:path";

export interface ProgramOptions {
  /** Its name on the path, or where it is. */
  readonly name: string;
  /** Debian's packages that bring it. None if it cannot be installed. */
  readonly packages?: readonly string[];
  /** Where it may be besides the path. Asked again after an installation. */
  folders?(): readonly string[];
}

const found = new Map<string, string>();

/** Installs Debian's package where that is possible. Tells once which engine the tests of this process run against. */
export function findProgram(options: ProgramOptions): string {
  const { name, packages = [] } = options;
  const known = found.get(name);
  if (known !== undefined) return known;
  const program = look(options) ?? (packages.length > 0 && install(packages) ? look(options) : undefined);
  if (program === undefined) {
    throw new Error(`${name} is not installed. Install it, or run as root on Debian.`);
  }
  console.log(`Tests run against ${name}: ${program.version}`);
  found.set(name, program.path);
  return program.path;
}

/**
 * Whether tests against an engine can run here. Where they cannot, it says so loudly and the tests count as skipped; in
 * continuous integration that is a failure, because nobody would notice.
 */
export function canRun(engine: string, find: () => unknown): boolean {
  try {
    find();
    return true;
  } catch (error) {
    return cannotRun(engine, error as Error);
  }
}

/** Says that tests are skipped, or fails where nobody would notice. */
export function cannotRun(engine: string, error: Error): false {
  if (process.env["CI"] === "true") throw error;
  console.warn(`\n*** SKIPPED: all tests against ${engine}. ${error.message} ***\n`);
  return false;
}

function look({ name, folders }: ProgramOptions): { path: string; version: string } | undefined {
  for (const path of [name, ...(folders?.() ?? []).map((folder) => join(folder, name))]) {
    const version = versionOf(path);
    if (version !== undefined) return { path, version };
  }
  return undefined;
}

function versionOf(path: string): string | undefined {
  try {
    const text = execFileSync(path, ["--version"], { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] });
    return /\d+(\.\d+)+/.exec(text)?.[0] ?? text.trim();
  } catch {
    return undefined;
  }
}

/**
 * Installs packages of Debian. Some of them start a service of their own; the tests leave that alone, and it does not
 * disturb them, because they take ports and folders of their own.
 */
export function install(packages: readonly string[]): boolean {
  if (process.getuid?.() !== 0) return false;
  // Several test files may come here at the same time: whoever is second waits for the first. The lock of dpkg alone
  // would not do, because an update of the lists fails at once while another one runs.
  const apt = ["/var/lib/dpkg", "apt-get"];
  const options = ["-qq", "-y", "-o", "DPkg::Lock::Timeout=120"];
  const environment = { ...process.env, DEBIAN_FRONTEND: "noninteractive" };
  for (const verb of ["install", "update", "install"]) {
    try {
      const rest = verb === "install" ? ["--no-install-recommends", ...packages] : [];
      execFileSync("flock", [...apt, verb, ...options, ...rest], { stdio: "ignore", env: environment });
      if (verb === "install") return true;
    } catch {
      // The last attempt decides.
    }
  }
  return false;
}
