export type { RemoteStoreOptions, RemoteTls } from "./options.ts";
export { connectRemote, remoteStore } from "./remote-store.ts";
