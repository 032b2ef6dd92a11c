import type { TestRunner } from "holdfast/testing";

export interface ContractReport {
  readonly passed: readonly string[];
  readonly skipped: readonly string[];
  readonly failed: readonly string[];
}

/** Runs what a suite defines without reporting to anybody, all tests side by side, and says what became of each. */
export async function runContract(defineSuite: (runner: TestRunner) => void): Promise<ContractReport> {
  const tests: { readonly name: string; readonly body: () => Promise<void> }[] = [];
  const skipped: string[] = [];
  const path: string[] = [];
  const fullName = (name: string) => [...path.slice(1), name].join(": ");
  const it = (name: string, body: () => Promise<void>) => tests.push({ name: fullName(name), body });
  it.skip = (name: string) => skipped.push(fullName(name));
  const runner: TestRunner = {
    describe(name, define) {
      path.push(name);
      define();
      path.pop();
    },
    it,
  };
  defineSuite(runner);

  const passed: string[] = [];
  const failed: string[] = [];
  await Promise.all(
    tests.map(async ({ name, body }) => ((await succeeds(body)) ? passed : failed).push(name)),
  );
  return { passed, skipped, failed };
}

/** Something broken can leave a test waiting for ever, which is a failure too. */
async function succeeds(body: () => Promise<void>): Promise<boolean> {
  let timer: NodeJS.Timeout | undefined;
  const hung = new Promise<boolean>((resolve) => {
    timer = setTimeout(() => resolve(false), 2_000);
  });
  const finished = body().then(
    () => true,
    () => false,
  );
  const result = await Promise.race([finished, hung]);
  clearTimeout(timer);
  return result;
}
