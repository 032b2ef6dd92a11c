import { readFileSync } from "node:fs";
import type { RedisServer } from "../../engines/redis.ts";
import type { Credentials } from "../../engines/redis-clients.ts";

/** A user with exactly the rights that the documentation lists, and changes to them. */
export async function createUser(
  servers: readonly RedisServer[],
  username: string,
  ...changes: readonly string[]
): Promise<Credentials> {
  const words = documentedRights().map((word) => (word.startsWith(">") ? ">secret" : word));
  for (const server of servers) await server.command("ACL", "SETUSER", username, ...words, ...changes);
  return { username, password: "secret" };
}

/** The words of the rule in docs/stores/redis.md. */
export function documentedRights(): string[] {
  const page = readFileSync(new URL("../../../docs/stores/redis.md", import.meta.url), "utf8");
  const rule = /^ACL SETUSER holdfast ((?:.*\\\n)*.*)$/m.exec(page)?.[1];
  if (rule === undefined)
    throw new Error("docs/stores/redis.md does not list the rights that the store needs.");
  return rule.split(/[\s\\]+/);
}
