import { HoldfastError } from "holdfast";
import { expect } from "vitest";

/** The error of a failed call, which must be a `HoldfastError`. */
export async function failure(call: Promise<unknown>): Promise<HoldfastError> {
  const error = await call.then(
    () => undefined,
    (error: unknown) => error,
  );
  expect(error).toBeInstanceOf(HoldfastError);
  return error as HoldfastError;
}
