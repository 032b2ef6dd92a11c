/** A network between a client and a server on the same machine: what travels through it takes its time. */
import { type NetworkProxy, startProxy } from "../../test/engines/proxy.ts";
import { offer } from "../child.ts";

let proxy: NetworkProxy;
const nobodyWakes = new Int32Array(new SharedArrayBuffer(4));

const network = {
  async open({ port, delayMs }: { readonly port: number; readonly delayMs: number }): Promise<number> {
    proxy = await startProxy(port);
    proxy.decide(({ direction }) => {
      // Timers of the event loop would round this to whole milliseconds. With one caller, nothing else has to pass meanwhile.
      if (direction === "reply") Atomics.wait(nobodyWakes, 0, 0, delayMs);
      return "pass";
    });
    return proxy.port;
  },
};

export type Network = typeof network;

offer(network);
