import { usageError } from "./failure.ts";

/** Parses a whole number. The error shows the given text instead of a number that may be NaN. */
export function parseInteger(name: string, text: string, min: number, max: number): number {
  const value = /^\d{1,15}$/.test(text) ? Number(text) : Number.NaN;
  if (value >= min && value <= max) return value;
  throw usageError(`${name} must be a whole number from ${min} to ${max}, not ${JSON.stringify(text)}.`);
}
