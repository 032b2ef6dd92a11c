/** Permissions of callers. */
import { HoldfastError } from "../store/index.ts";

/** `acquire` takes, renews and releases locks; `read` shows holders and waiters; `admin` ends claims of other principals. */
export type Verb = "acquire" | "read" | "admin";

export const verbs: readonly Verb[] = ["acquire", "read", "admin"];

/** A permission: these verbs, for keys that begin with the prefix. An empty prefix is every key. */
export interface Grant {
  readonly prefix: string;
  readonly verbs: readonly Verb[];
}

/** The name and the permissions of a caller. */
export interface Principal {
  readonly name: string;
  /** Absent on a server without tokens, which permits everything. */
  readonly grants?: readonly Grant[];
}

/** Whether the principal may do this with the key, or with every key that begins with the prefix. */
export function may(principal: Principal, verb: Verb, keyOrPrefix: string): boolean {
  if (principal.grants === undefined) return true;
  for (const grant of principal.grants) {
    if (keyOrPrefix.startsWith(grant.prefix) && grant.verbs.includes(verb)) return true;
  }
  return false;
}

/** The token of the caller does not permit the operation. */
export class Forbidden extends HoldfastError {
  readonly verb: Verb;
  /** The id of the claim, if the operation names one. */
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

/** The permission to renew or release a claim. A reference without a token names a claim of another principal. */
export function verbFor(ref: { readonly token?: string }): Verb {
  return ref.token === undefined ? "admin" : "acquire";
}
