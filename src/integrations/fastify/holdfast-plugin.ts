import type { FastifyInstance, FastifyPluginAsync } from "fastify";
import type { Locks } from "../../client/index.ts";
import { type HostedLocks, type HostOptions, hostLocks } from "../frameworks/index.ts";

declare module "fastify" {
  interface FastifyInstance {
    /** The client of `holdfastPlugin`. */
    readonly locks: Locks;
  }
}

/** Options of `holdfastPlugin`: a `store` or `locks`, `graceMs`, and all options of `createLocks`. */
export interface HoldfastPluginOptions extends HostOptions {}

/** Where an instance has what `locked` works with. Servers may share a client, but each stops for itself. */
const HOSTED = Symbol("holdfast.hosted-locks");

export function hostOf(instance: FastifyInstance): HostedLocks | undefined {
  return (instance as { readonly [HOSTED]?: HostedLocks })[HOSTED];
}

/** Fastify passes its own options of `register` on to the plugin. */
type Registered = HoldfastPluginOptions & { prefix?: unknown; logLevel?: unknown; logSerializers?: unknown };

const plugin: FastifyPluginAsync<HoldfastPluginOptions> = async (instance, options) => {
  const { prefix: _, logLevel: __, logSerializers: ___, ...hostOptions } = options as Registered;
  const hosted = hostLocks(hostOptions);
  instance.decorate("locks", hosted.locks);
  instance.decorate(HOSTED, hosted);
  // Before the requests in progress are waited for: none of them should hold the server up by waiting for a lock.
  instance.addHook("preClose", async () => hosted.stop());
  // After them.
  instance.addHook("onClose", async () => hosted.close());
};

/** Makes `instance.locks`, for the instance that it is registered on and all below it, and closes it with the server. */
export const holdfastPlugin: FastifyPluginAsync<HoldfastPluginOptions> = Object.assign(plugin, {
  // What the package fastify-plugin does: the decoration is not kept to a context of its own.
  [Symbol.for("skip-override")]: true,
  [Symbol.for("fastify.display-name")]: "holdfast",
  [Symbol.for("plugin-meta")]: { name: "holdfast", fastify: "5.x" },
});
