/** A server of etcd that wants to know who asks. */
import { Etcd3 } from "etcd3";

/** Who may use what is below the prefix `holdfast/`, and nothing else. */
export const user = { username: "holdfast", password: "secret" };

/** Makes that user, and lets nobody in from now on who does not log in. */
export async function demandLogin(url: string): Promise<void> {
  const admin = new Etcd3({ hosts: url });
  const root = admin.user("root");
  await root.create("root");
  await admin.role("root").create();
  await root.addRole("root");
  const role = admin.role("locks");
  await role.create();
  await role.grant({ permission: "Readwrite", range: admin.range({ prefix: "holdfast/" }) });
  const created = admin.user(user.username);
  await created.create(user.password);
  await created.addRole("locks");
  await admin.auth.authEnable();
  admin.close();
}
