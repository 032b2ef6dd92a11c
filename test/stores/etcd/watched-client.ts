/** A client whose every call is on record, and can be held back before it is made. */
import type { Etcd3 } from "etcd3";
import type { EtcdClient } from "holdfast/etcd";

/** Told of each call by the name of its method. The call is made when the promise resolves. */
export type OnCall = (method: string) => Promise<void> | undefined;

export function watchedClient(client: Etcd3, onCall: OnCall): EtcdClient {
  const watched = <T extends object>(part: T): T =>
    new Proxy(part, {
      get(target, name) {
        const member: unknown = Reflect.get(target, name);
        if (typeof member !== "function") return member;
        return (...args: unknown[]) => {
          const held = onCall(String(name));
          const call = () => Reflect.apply(member, target, args);
          return held === undefined ? call() : held.then(call);
        };
      },
    });
  const { kv, leaseClient, watchClient, maintenance } = client;
  return {
    kv: watched(kv),
    leaseClient: watched(leaseClient),
    watchClient: watched(watchClient),
    maintenance: watched(maintenance),
  };
}
