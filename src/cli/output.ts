/** The output of commands. */
import { styleText } from "node:util";

export interface Output {
  readonly isTerminal: boolean;
  /** Writes a line of the result to the standard output. */
  line(text: string): void;
  /** Writes a line about progress or failures to the standard error. */
  note(text: string): void;
  /** Writes without a line end, for redrawing a terminal. */
  raw(text: string): void;
  paint(colour: Colour, text: string): string;
}

export type Colour = "bold" | "dim" | "green" | "red" | "yellow";

/** Colours are for terminals, unless NO_COLOR or FORCE_COLOR is set: https://no-color.org */
function wantsColour(): boolean {
  const { NO_COLOR, FORCE_COLOR, TERM } = process.env;
  if (NO_COLOR !== undefined && NO_COLOR !== "") return false;
  if (FORCE_COLOR !== undefined) return FORCE_COLOR !== "0";
  return process.stdout.isTTY === true && TERM !== "dumb";
}

/** The output of this process. A reader that exits, as `head` does, ends the process without an error. */
export function processOutput(): Output {
  process.stdout.on("error", (error: NodeJS.ErrnoException) => {
    if (error.code !== "EPIPE") throw error;
    process.exit();
  });
  // The command goes on without a reader of its progress.
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

/** Columns under their headings. The last cell of a row is not padded. */
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

/** In characters: some have two UTF-16 units. */
function widthOf(text: string): number {
  return [...text].length;
}

/** JSON with fences as decimal strings, since a JavaScript number would round them. */
export function toJson(value: unknown): string {
  return JSON.stringify(value, (_, part) => (typeof part === "bigint" ? part.toString() : part));
}
