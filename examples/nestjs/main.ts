/**
 * A Nest application with two locked methods: transfers wait for their account, a report is skipped while one is being made.
 *
 * It starts, sends itself requests at the same time, prints what happened and stops. Run it after `npm run build`:
 * `TSX_TSCONFIG_PATH=examples/tsconfig.json node --import tsx examples/nestjs/main.ts`
 */
import { setTimeout as sleep } from "node:timers/promises";
import { Controller, Inject, Injectable, Module, Param, Post } from "@nestjs/common";
import { NestFactory } from "@nestjs/core";
import { type Locks, memoryStore } from "holdfast";
import { currentLease, HoldfastModule, InjectLocks, Locked } from "holdfast/nestjs";

@Injectable()
class Accounts {
  readonly #balances = new Map([["a", 100]]);

  /** Reads, thinks and writes: without the lock, two at once would both read 100. */
  @Locked((id: string) => `account:${id}`, { waitMs: 5_000 })
  async withdraw(id: string, amount: number): Promise<number> {
    const balance = this.#balances.get(id) ?? 0;
    await sleep(20, undefined, { signal: currentLease()?.signal });
    this.#balances.set(id, balance - amount);
    return balance - amount;
  }

  @Locked("report", { contended: "skip" })
  async report(): Promise<string> {
    await sleep(50);
    return "reported";
  }
}

@Controller("accounts")
class AccountsController {
  constructor(
    @Inject(Accounts) readonly accounts: Accounts,
    @InjectLocks() readonly locks: Locks,
  ) {}

  @Post(":id/withdrawals")
  async withdraw(@Param("id") id: string): Promise<{ balance: number }> {
    return { balance: await this.accounts.withdraw(id, 10) };
  }

  @Post("report")
  async report(): Promise<{ report: string }> {
    return { report: (await this.accounts.report()) ?? "skipped" };
  }
}

@Module({
  imports: [HoldfastModule.forRoot({ store: memoryStore(), application: "accounts" })],
  providers: [Accounts],
  controllers: [AccountsController],
})
class Application {}

const app = await NestFactory.create(Application, { logger: ["error", "warn"] });
await app.listen(0, "127.0.0.1");
const url = await app.getUrl();
async function post<Answer>(path: string): Promise<Answer> {
  const response = await fetch(`${url}/accounts/${path}`, { method: "POST" });
  return (await response.json()) as Answer;
}

const withdrawals = await Promise.all(
  Array.from({ length: 5 }, () => post<{ balance: number }>("a/withdrawals")),
);
const balances = withdrawals.map(({ balance }) => balance).sort((a, b) => b - a);
console.log(`five withdrawals at once: ${balances.join(", ")}`);

const reports = await Promise.all(["report", "report"].map((path) => post<{ report: string }>(path)));
const outcomes = reports.map(({ report }) => report).sort();
console.log(`two reports at once: ${outcomes.join(", ")}`);

const { locks } = app.get(AccountsController);
await app.close();
const { granted, released, lost } = locks.stats();
console.log(`granted ${granted}, released ${released}, lost ${lost}`);
