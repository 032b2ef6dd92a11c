/** Durations as people write them: `500ms`, `30s`, `1h30m`. */
import { invalid } from "../store/index.ts";

const units = [
  ["d", 86_400_000],
  ["h", 3_600_000],
  ["m", 60_000],
  ["s", 1_000],
  ["ms", 1],
] as const;

const unitMs: Readonly<Record<string, number>> = Object.fromEntries(units);

/** Parses to milliseconds. A number without a unit is refused, except 0. */
export function parseDuration(name: string, text: string): number {
  if (text === "0") return 0;
  const parts = [...text.matchAll(/(\d+(?:\.\d+)?)(ms|d|h|m|s)/g)];
  if (parts.length === 0 || parts.map(([part]) => part).join("") !== text) {
    throw invalid(
      `${name} must be a duration such as 500ms, 30s, 5m or 1h30m, not ${JSON.stringify(text)}.` +
        (/^\d+$/.test(text) ? ` Did you mean ${text}s or ${text}ms?` : ""),
    );
  }
  const ms = parts.reduce((sum, [, number, unit = ""]) => sum + Number(number) * (unitMs[unit] ?? 0), 0);
  if (!Number.isInteger(ms))
    throw invalid(`${name} must be a whole number of milliseconds, not ${JSON.stringify(text)}.`);
  return ms;
}

/** The inverse of {@link parseDuration}. */
export function writeDuration(ms: number): string {
  if (ms === 0) return "0";
  let rest = ms;
  let text = "";
  for (const [unit, size] of units) {
    const count = Math.floor(rest / size);
    if (count > 0) text += `${count}${unit}`;
    rest -= count * size;
  }
  return text;
}

/** For tables: at most the two largest units, rounded down. */
export function roughDuration(ms: number): string {
  if (ms < 1_000) return `${Math.max(0, Math.round(ms))}ms`;
  if (ms < 60_000) return `${(Math.floor(ms / 100) / 10).toFixed(1)}s`;
  const parts = writeDuration(Math.floor(ms / 1_000) * 1_000).match(/\d+[a-z]+/g) ?? [];
  return parts.slice(0, 2).join("");
}
