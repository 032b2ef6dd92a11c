/** The compiler is the test: `npm run check` fails where one of these lines is not the error that it is said to be. */
import { Locked } from "holdfast/nestjs";
import { expect, test } from "vitest";

class Accounts {
  @Locked((id: string) => `account:${id}`)
  async settle(_id: string, _amount: number): Promise<void> {}

  @Locked("all")
  async settleAll(_ids: readonly string[]): Promise<number> {
    return 0;
  }

  // @ts-expect-error: the key is made of a number, and the method is called with a text.
  @Locked((id: number) => `account:${id}`)
  async wrongArgument(_id: string): Promise<void> {}

  // @ts-expect-error: the key is made of more than the method is called with.
  @Locked((id: string, region: string) => `account:${region}:${id}`)
  async tooFewArguments(_id: string): Promise<void> {}

  // @ts-expect-error: the lock makes a method asynchronous, so it has to be that already.
  @Locked("sync")
  returnsAtOnce(): number {
    return 0;
  }
}

test("a locked method keeps its type", () => {
  const settle: (id: string, amount: number) => Promise<void> = Accounts.prototype.settle;
  expect(settle.name).toBe("settle");
});
