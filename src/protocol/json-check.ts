/** Refuses JSON with unknown fields or enum names, since the default in place of a misspelt one would be another lock. */
import type { DescEnum, DescField, DescMessage } from "@bufbuild/protobuf";
import { invalid, nearest } from "../store/index.ts";

/** Throws `INVALID_ARGUMENT`. The parser of messages refuses values of a wrong type. */
export function checkJson(message: DescMessage, json: unknown, path = ""): void {
  if (typeof json !== "object" || json === null || Array.isArray(json)) return;
  for (const [name, value] of Object.entries(json)) {
    const field = message.fields.find((known) => known.jsonName === name || known.name === name);
    if (field === undefined) throw noSuchField(message, `${path}${name}`, name);
    checkField(field, value, `${path}${name}`);
  }
}

function checkField(field: DescField, value: unknown, path: string): void {
  if (field.fieldKind === "list" && Array.isArray(value)) {
    for (const [index, item] of value.entries()) checkValue(field, item, `${path}[${index}]`);
  } else checkValue(field, value, path);
}

function checkValue({ message, enum: names }: DescField, value: unknown, path: string): void {
  if (message !== undefined) checkJson(message, value, `${path}.`);
  if (names !== undefined) checkName(names, value, path);
}

function checkName({ values }: DescEnum, value: unknown, path: string): void {
  const isKnown = values.some(({ name, number }) => value === name || value === number);
  if (isKnown || (typeof value !== "string" && typeof value !== "number")) return;
  const names = values.filter(({ number }) => number !== 0).map(({ name }) => name);
  const found = `${path} must be one of ${names.join(", ")}, not ${JSON.stringify(value).slice(0, 100)}.`;
  const meant = typeof value === "string" ? meantBy(value, names) : undefined;
  throw invalid(meant === undefined ? found : `${found} Did you mean ${meant}?`);
}

function noSuchField(message: DescMessage, path: string, name: string) {
  const names = message.fields.map(({ jsonName }) => jsonName);
  const found = `${path.slice(0, 100)} is not a field of ${message.name}.`;
  const meant = meantBy(name, names);
  return invalid(
    meant === undefined ? `${found} Its fields are ${names.join(", ")}.` : `${found} Did you mean ${meant}?`,
  );
}

/** Finds the name that contains the word, such as `ttlMs` for `ttl`, or the most similar name. */
function meantBy(word: string, names: readonly string[]): string | undefined {
  // Bounds the work of the comparison.
  if (word.length > 64) return undefined;
  const letters = (text: string) => text.toLowerCase().replaceAll("_", "");
  const part = letters(word);
  const whole = part.length < 3 ? undefined : names.find((name) => letters(name).includes(part));
  return whole ?? nearest(word, names);
}
