/** Reads, checks and writes values of settings. */
import { parseDuration, writeDuration } from "../duration.ts";
import { usageError } from "../failure.ts";
import type { Setting } from "./setting-table.ts";

export type Value = string | number | boolean;

/** Reads a value. Errors name its origin: a flag, a variable, or a key of a file. */
export function readValue(setting: Setting, raw: unknown, origin: string): Value {
  switch (setting.kind) {
    case "switch":
      return readSwitch(raw, origin);
    case "integer":
      return within(setting, readInteger(raw, origin), origin, String);
    case "duration":
      return within(setting, readDuration(raw, origin), origin, writeDuration);
    case "choice":
      return readChoice(setting, raw, origin);
    default:
      return readText(raw, origin);
  }
}

export function writeValue(setting: Setting, value: Value): string {
  return setting.kind === "duration" && typeof value === "number" ? writeDuration(value) : String(value);
}

function readText(raw: unknown, origin: string): string {
  if (typeof raw === "string" && raw !== "") return raw;
  throw usageError(`${origin} must be a string that is not empty, not ${show(raw)}.`);
}

function readSwitch(raw: unknown, origin: string): boolean {
  if (typeof raw === "boolean") return raw;
  if (raw === "true" || raw === "1") return true;
  if (raw === "false" || raw === "0") return false;
  throw usageError(`${origin} must be true or false, not ${show(raw)}.`);
}

function readInteger(raw: unknown, origin: string): number {
  if (typeof raw === "number" && Number.isInteger(raw)) return raw;
  if (typeof raw === "string" && /^\d{1,15}$/.test(raw)) return Number(raw);
  throw usageError(`${origin} must be a whole number, not ${show(raw)}.`);
}

function readDuration(raw: unknown, origin: string): number {
  if (typeof raw === "string" || raw === 0) return parseDuration(origin, String(raw));
  throw usageError(`${origin} must be a duration such as 30s, not ${show(raw)}.`);
}

function readChoice({ choices = [] }: Setting, raw: unknown, origin: string): string {
  if (typeof raw === "string" && choices.includes(raw)) return raw;
  throw usageError(`${origin} must be one of ${choices.join(", ")}, not ${show(raw)}.`);
}

function within(
  { min = 0, max = Number.MAX_SAFE_INTEGER }: Setting,
  value: number,
  origin: string,
  write: (value: number) => string,
): number {
  if (value >= min && value <= max) return value;
  throw usageError(`${origin} must be from ${write(min)} to ${write(max)}, not ${write(value)}.`);
}

function show(raw: unknown): string {
  return raw === undefined || raw === null ? "nothing" : JSON.stringify(raw);
}
