/** A server of etcd that wants to know who asks. */
import { Etcd3 } from "etcd3";

/** Who may use what is below the prefix `holdfast/`, and nothing else. */
export const user = { username: "holdfast", password: "secret" };
/** Who may only look at what is there. */
export const reader = { username: "reader", password: "secret" };
/** Who may change what is there, and not look at it. */
export const writer = { username: "writer", password: "secret" };
/** Who may do anything. */
export const root = { username: "root", password: "root" };

/** Makes these users, and lets nobody in from now on who does not log in. */
export async function demandLogin(url: string): Promise<void> {
  const admin = new Etcd3({ hosts: url });
  await admin.user(root.username).create(root.password);
  await admin.role("root").create();
  await admin.user(root.username).addRole("root");
  const range = admin.range({ prefix: "holdfast/" });
  for (const [{ username, password }, permission] of [
    [user, "Readwrite"],
    [reader, "Read"],
    [writer, "Write"],
  ] as const) {
    const role = admin.role(`locks of ${username}`);
    await role.create();
    await role.grant({ permission, range });
    const created = admin.user(username);
    await created.create(password);
    await created.addRole(role.name);
  }
  await admin.auth.authEnable();
  admin.close();
}
