/** Lets `JSON.stringify` write something that is shown to people: its fences as decimal strings, as on the wire. */
export function jsonable<T extends object>(shown: T): T {
  return Object.defineProperty({ ...shown }, "toJSON", { value: toJSON });
}

function toJSON(this: object): object {
  const parts = Object.entries(this).map(([name, part]) => [
    name,
    typeof part === "bigint" ? part.toString() : part,
  ]);
  return Object.fromEntries(parts);
}
