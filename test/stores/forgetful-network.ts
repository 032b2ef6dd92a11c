/** A network that forgets open connections without a reset, as a proxy, a firewall or a host that dies does. */
import { proxied } from "./fault-suite.ts";

export interface ForgetfulNetwork {
  readonly port: number;
  /** Nothing gets through, also over new connections. */
  fallSilent(): void;
  /** New connections work again. Those from before stay silent for ever. */
  comeBack(): void;
  /** Tells both ends of the old ones that they are over. */
  reset(): void;
}

/** Stands before a port of this machine until the test ends. */
export async function forgetful(targetPort: number): Promise<ForgetfulNetwork> {
  const proxy = await proxied(targetPort);
  let forgottenUpTo = 0;
  let latest = 0;
  proxy.decide(({ connection: { number } }) => {
    latest = Math.max(latest, number);
    return number <= forgottenUpTo ? "hold" : "pass";
  });
  return {
    port: proxy.port,
    fallSilent() {
      forgottenUpTo = Number.POSITIVE_INFINITY;
    },
    comeBack() {
      forgottenUpTo = latest;
    },
    reset: () => proxy.cut(),
  };
}
