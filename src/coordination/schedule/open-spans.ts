/** Spans of time whose ticks are not settled, in order and apart. All moments are whole seconds, in milliseconds. */
import { bounds } from "../../store/index.ts";
import { SECOND_MS, type Ticks } from "./ticks.ts";

export type Span = readonly [firstMs: number, lastMs: number];

export function includes(spans: readonly Span[], ms: number): boolean {
  return spans.some(([firstMs, lastMs]) => firstMs <= ms && ms <= lastMs);
}

/** The time that is in both. */
export function common(some: readonly Span[], others: readonly Span[]): Span[] {
  return some.flatMap(([firstMs, lastMs]) =>
    others
      .map(
        ([otherFirstMs, otherLastMs]): Span => [
          Math.max(firstMs, otherFirstMs),
          Math.min(lastMs, otherLastMs),
        ],
      )
      .filter(([fromMs, toMs]) => fromMs <= toMs),
  );
}

/** The spans without these ticks, and without parts that have no tick. */
export function without(spans: readonly Span[], settled: readonly number[], ticks: Ticks): Span[] {
  let left = [...spans];
  for (const tickMs of settled) {
    left = common(left, [
      [Number.NEGATIVE_INFINITY, tickMs - SECOND_MS],
      [tickMs + SECOND_MS, Number.POSITIVE_INFINITY],
    ]);
  }
  return left.flatMap(([firstMs, lastMs]): Span[] => {
    const tickMs = ticks.after(firstMs - 1);
    return tickMs === undefined || tickMs > lastMs ? [] : [[tickMs, lastMs]];
  });
}

/** The spans up to a floor, as seconds below it. Undefined when that is too long for a note. */
export function writeSpans(spans: readonly Span[], floorMs: number): string | undefined {
  const below = (ms: number) => ((floorMs - ms) / SECOND_MS).toString(36);
  const text = spans.map(([firstMs, lastMs]) => `${below(firstMs)}-${below(lastMs)}`).join();
  return text.length > bounds.infoBytes ? undefined : text;
}

/** The open spans of a floor: those that it lists, and all time above it. */
export function readSpans(text: string, floorMs: number): Span[] {
  const spans = text.split(",").flatMap((span): Span[] => {
    const [firstMs, lastMs] = span
      .split("-")
      .map((below) => floorMs - Number.parseInt(below, 36) * SECOND_MS);
    return firstMs === undefined || lastMs === undefined ? [] : [[firstMs, lastMs]];
  });
  return [...spans, [floorMs + SECOND_MS, Number.POSITIVE_INFINITY]];
}
