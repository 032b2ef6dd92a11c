export type { EtcdClient } from "./client.ts";
export { type EtcdStoreOptions, etcdStore } from "./etcd-store.ts";
