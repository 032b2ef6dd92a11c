/** What goes to the standard output, and how it looks. */
import { styleText } from "node:util";

/** Where a command writes to, and what it knows of it. */
export interface Output {
  readonly isTerminal: boolean;
  /** A line of what was asked for, on the standard output. */
  line(text: string): void;
  /** A line about what is going on, on the standard error. */
  note(text: string): void;
  /** Without a line's end: for redrawing a terminal. */
  raw(text: string): void;
  paint(colour: Colour, text: string): string;
}

export type Colour = "bold" | "dim" | "green" | "red" | "yellow";

/** Colours only where somebody sees them, and not where they are not wanted: https://no-color.org */
function wantsColour(): boolean {
  const { NO_COLOR, FORCE_COLOR, TERM } = process.env;
  if (NO_COLOR !== undefined && NO_COLOR !== "") return false;
  if (FORCE_COLOR !== undefined) return FORCE_COLOR !== "0";
  return process.stdout.isTTY === true && TERM !== "dumb";
}

/** The output of this process. A reader that has gone away, as `head` does, ends it quietly. */
export function processOutput(): Output {
  process.stdout.on("error", (error: NodeJS.ErrnoException) => {
    if (error.code !== "EPIPE") throw error;
    process.exit();
  });
  // Nobody reads what is going on, which is no reason to end it.
  process.stderr.on("error", () => {});
  const colours = wantsColour();
  return {
    isTerminal: process.stdout.isTTY === true,
    line: (text) => void process.stdout.write(`${text}\n`),
    note: (text) => void process.stderr.write(`${text}\n`),
    raw: (text) => void process.stdout.write(text),
    paint: (colour, text) => (colours ? styleText(colour, text, { validateStream: false }) : text),
  };
}

/** Columns under their headings. What is last in a row is not padded. */
export function table(
  output: Output,
  headings: readonly string[],
  rows: readonly (readonly string[])[],
): string[] {
  const widths = headings.map((heading, column) =>
    rows.reduce((widest, row) => Math.max(widest, widthOf(row[column] ?? "")), widthOf(heading)),
  );
  const pad = (cells: readonly string[]) =>
    cells
      .map((cell, column) => cell + " ".repeat((widths[column] ?? 0) - widthOf(cell)))
      .join("  ")
      .trimEnd();
  return [output.paint("bold", pad(headings)), ...rows.map(pad)];
}

/** In characters, not in the halves that some of them are made of. */
function widthOf(text: string): number {
  return [...text].length;
}

/** JSON with fences as decimal strings: a number of JavaScript would round them. */
export function toJson(value: unknown): string {
  return JSON.stringify(value, (_, part) => (typeof part === "bigint" ? part.toString() : part));
}
