import { HoldfastError } from "holdfast";
import { expect } from "vitest";

/** What a call fails with, which must be an error of ours. */
export async function failure(call: Promise<unknown>): Promise<HoldfastError> {
  const error = await call.then(
    () => undefined,
    (error: unknown) => error,
  );
  expect(error).toBeInstanceOf(HoldfastError);
  return error as HoldfastError;
}
