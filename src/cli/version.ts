/** The version in package.json. */
import { readFileSync } from "node:fs";

const { version: text } = JSON.parse(
  readFileSync(new URL("../../package.json", import.meta.url), "utf8"),
) as {
  readonly version: string;
};

export const version: string = text;
