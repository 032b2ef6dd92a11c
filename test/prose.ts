/** Sentences of comments and pages, and the patterns that make a sentence hard to read: each may match a bounded share. */
import { read } from "./source-tree.ts";

interface Pattern {
  readonly isIn: (text: string) => boolean;
  /** The share of the sentences that may match, in percent: of comments, and of pages. */
  readonly most: { readonly code: number; readonly pages: number };
}

export const patterns: Readonly<Record<string, Pattern>> = {
  "begins with What, Whoever, One that": {
    isIn: (text) => /^(What|Whoever|Whatever|Whichever|Whose|Whom|One that|That which)\b/.test(text),
    most: { code: 9.9, pages: 0.4 },
  },
  "nobody, somebody, whoever": {
    isIn: (text) => /\b(nobody|somebody|anybody|everybody|whoever|whomever)\b/i.test(text),
    most: { code: 7.3, pages: 0.4 },
  },
  "what without a noun": {
    isIn: (text) => /\b(of|for|to|in|with|by|from|than|and|or|,) what\b/i.test(text),
    most: { code: 3.5, pages: 0.3 },
  },
  "rare words": {
    isIn: (text) =>
      /\b(anew|dear|dearer|told of|of before|thereof|lest|save that|but for those|comes? about|comes? of|at the most|at the least)\b/i.test(
        text,
      ),
    most: { code: 1.4, pages: 0.2 },
  },
  "over 30 words": { isIn: (text) => text.split(/\s+/).length > 30, most: { code: 2.2, pages: 2 } },
};

/** The sentences of more than three words, with inline code as one word. */
function sentencesIn(text: string): readonly string[] {
  return text
    .replace(/`[^`]*`/g, "X")
    .split(/(?<=[.!?:;])\s+(?=[A-Z(])/)
    .map((sentence) => sentence.trim())
    .filter((sentence) => sentence.split(/\s+/).length > 3);
}

/** Each run of comment lines is one text. */
export function sentencesOfCode(path: string): readonly string[] {
  const texts = [""];
  for (const line of read(path).split("\n")) {
    const comment = /^\s*(?:\/\*\*?|\*|\/\/|--)\s?(.*)$/
      .exec(line)?.[1]
      ?.replace(/\*\/\s*$/, "")
      .trim();
    if (comment && !comment.startsWith("@")) texts[texts.length - 1] += ` ${comment}`;
    else texts.push("");
  }
  return texts.flatMap(sentencesIn);
}

/** Paragraphs and list items; code, tables and headings are left out. */
export function sentencesOfPage(path: string): readonly string[] {
  const texts = [""];
  let isCode = false;
  for (const line of read(path).split("\n")) {
    if (/^\s*```/.test(line)) isCode = !isCode;
    const isText = !isCode && line.trim() !== "" && !/^\s*(\||#|```)/.test(line);
    if (!isText || /^\s*([-*]|\d+\.)\s/.test(line)) texts.push("");
    if (isText) texts[texts.length - 1] += ` ${line.trim()}`;
  }
  return texts.flatMap(sentencesIn);
}
