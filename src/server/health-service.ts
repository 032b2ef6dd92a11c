/** Health as gRPC asks for it. It takes no token: load balancers have none. */
import { Code, ConnectError, type ServiceImpl } from "@connectrpc/connect";
import { health as wire } from "../protocol/index.ts";
import { connectErrorOf } from "./call-errors.ts";
import type { Health } from "./health.ts";
import { newClient } from "./ledger.ts";
import type { ResolvedLimits } from "./limits.ts";
import { pause } from "./pause.ts";
import { occupyUntil } from "./quota.ts";

const services = ["", "holdfast.v1.Locks", "holdfast.v1.Session"];

/** How often a watcher's status is looked at. */
const LOOK_MS = 1_000;

const { SERVING, NOT_SERVING, SERVICE_UNKNOWN } = wire.HealthCheckResponse_ServingStatus;

export function healthService(
  health: Health,
  limits: ResolvedLimits,
  leaving: AbortSignal,
): ServiceImpl<typeof wire.Health> {
  // Without tokens nobody is told apart.
  const anybody = newClient("anybody", "");
  const statusNow = async () => ((await health.isReady()) ? SERVING : NOT_SERVING);
  const enter = (signal: AbortSignal, limit: "maxCalls" | "maxWatches") => {
    try {
      occupyUntil(signal, anybody, limit, limits);
    } catch (error) {
      throw connectErrorOf(error);
    }
  };
  return {
    async check({ service }, { signal }) {
      enter(signal, "maxCalls");
      if (!services.includes(service))
        throw new ConnectError(`The service "${service}" does not exist on this server.`, Code.NotFound);
      return { status: await statusNow() };
    },
    async *watch({ service }, { signal }) {
      enter(signal, "maxWatches");
      if (!services.includes(service)) {
        yield { status: SERVICE_UNKNOWN };
        await new Promise<void>((resolve) => {
          const over = AbortSignal.any([signal, leaving]);
          over.addEventListener("abort", () => resolve());
          if (over.aborted) resolve();
        });
        return;
      }
      const over = AbortSignal.any([signal, leaving]);
      for (let told: unknown; ; ) {
        const status = await statusNow();
        if (status !== told) yield { status };
        told = status;
        if (over.aborted) return;
        await pause(LOOK_MS, over);
      }
    },
  };
}
