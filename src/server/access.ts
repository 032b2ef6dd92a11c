/** Who may do what. */
import { HoldfastError } from "../store/index.ts";

/** `acquire` takes, keeps and gives back locks; `read` sees who has them; `admin` ends those of others. */
export type Verb = "acquire" | "read" | "admin";

export const verbs: readonly Verb[] = ["acquire", "read", "admin"];

/** A permission: these verbs, for keys that begin with the prefix. An empty prefix is every key. */
export interface Grant {
  readonly prefix: string;
  readonly verbs: readonly Verb[];
}

/** Who makes a call. */
export interface Principal {
  /** For logs and limits. */
  readonly name: string;
  /** Absent: everything is permitted, as on a server without tokens. */
  readonly grants?: readonly Grant[];
}

/** Whether the principal may do this with the key, or with every key that begins with it. */
export function may(principal: Principal, verb: Verb, keyOrPrefix: string): boolean {
  if (principal.grants === undefined) return true;
  for (const grant of principal.grants) {
    if (keyOrPrefix.startsWith(grant.prefix) && grant.verbs.includes(verb)) return true;
  }
  return false;
}

/** A principal asked for what its token does not permit. */
export class Forbidden extends HoldfastError {
  readonly verb: Verb;
  /** The claim that it was about, if it was about one. */
  readonly id: string | undefined;

  constructor({ name }: Principal, verb: Verb, key: string, id?: string) {
    super(
      "UNAUTHORIZED",
      `The token "${name}" does not permit to ${verb} "${key}". Add a grant in the server's token file, or use another token.`,
      { key },
    );
    this.verb = verb;
    this.id = id;
  }
}

export function checkMay(principal: Principal, verb: Verb, keyOrPrefix: string, id?: string): void {
  if (!may(principal, verb, keyOrPrefix)) throw new Forbidden(principal, verb, keyOrPrefix, id);
}

/** The verb that it takes to renew or release a claim: whoever does not name the token does it to somebody else. */
export function verbFor(ref: { readonly token?: string }): Verb {
  return ref.token === undefined ? "admin" : "acquire";
}
