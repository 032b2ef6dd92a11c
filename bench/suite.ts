import type { Report } from "./report.ts";

/** One suite of measurements, by the name that the command knows it under. */
export interface Suite {
  readonly name: string;
  /** With `quick`, sizes are so small that the figures mean nothing: it shows that the suite works. */
  run(options: { readonly quick: boolean; readonly progress: (text: string) => void }): Promise<Report>;
}
