/** A network between a client and a server on the same machine: what travels through it takes its time. */
import { type NetworkProxy, startProxy } from "../../test/engines/proxy.ts";
import { offer } from "../child.ts";

let proxy: NetworkProxy;

const network = {
  async open({ port, delayMs }: { readonly port: number; readonly delayMs: number }): Promise<number> {
    proxy = await startProxy(port);
    proxy.decide(({ direction }) => (direction === "reply" ? { delayMs } : "pass"));
    return proxy.port;
  },
};

export type Network = typeof network;

offer(network);
