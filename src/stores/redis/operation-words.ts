/** The operations of a call as arguments of the script, which `script.ts` describes. */

const { byteLength } = Buffer;

export interface AskedOperation {
  /** One digit. */
  readonly verb: string;
  readonly key: string;
  readonly id: string;
  /** Empty where whatever token the claim has will do. */
  readonly token: string;
  /** What else the verb needs, such as the terms of an acquire. What most of a batch have in common is sent once. */
  readonly asks: string | undefined;
}

/** How to cut the operations, the operations, and what they ask for. */
export function operationWords(batch: readonly AskedOperation[]): string[] {
  const asked = new Places();
  const runOf = ({ verb, asks }: AskedOperation, length: number) =>
    verb + (asks === undefined ? NOWHERE : asked.of(asks)) + twoCharacters(length);
  let keyCuts = "";
  let nameCuts = "";
  let keys = "";
  let names = "";
  let runs = "";
  let runCount = 0;
  let runLength = 0;
  let last: AskedOperation | undefined;
  for (const operation of batch) {
    const { verb, key, id, token, asks } = operation;
    if (verb !== last?.verb || asks !== last.asks) {
      if (last !== undefined) runs += runOf(last, runLength);
      last = operation;
      runCount++;
      runLength = 0;
    }
    runLength++;
    keyCuts += cutOf(byteLength(key));
    nameCuts += cutOf(byteLength(id) + byteLength(token) + 2);
    keys += key;
    names += `${id}\n${token}\n`;
  }
  if (last !== undefined) runs += runOf(last, runLength);
  const operations = twoCharacters(batch.length) + twoCharacters(runCount) + runs + keys + names;
  return [keyCuts + nameCuts, operations, ...asked.texts];
}

/** How many arguments of the script come before what the operations ask for. */
const FIXED_ARGUMENTS = 4;

/** The place of what is not asked for. */
const NOWHERE = "00";

/** Texts at the end of a script's arguments, in which equal ones share a place. Lua counts from 1. */
class Places {
  readonly texts: string[] = [];
  readonly #places = new Map<string, string>();

  of(text: string): string {
    let place = this.#places.get(text);
    if (place === undefined) {
      place = twoCharacters(FIXED_ARGUMENTS + this.texts.push(text));
      this.#places.set(text, place);
    }
    return place;
  }
}

const LARGEST = 4_095;

const numerals = Array.from({ length: LARGEST + 1 }, (_, number) =>
  String.fromCharCode(48 + (number >> 6), 48 + (number & 63)),
);

/** A number below 4,096 as two characters of plain text. */
function twoCharacters(number: number): string {
  return numerals[number] as string;
}

const cuts = Array.from({ length: LARGEST + 1 }, (_, length) => `c${length}`);

/** How `struct.unpack` is told to cut off so many bytes. */
function cutOf(length: number): string {
  return cuts[length] as string;
}
