/** The health service of gRPC. It needs no token, since load balancers have none. */
import { Code, ConnectError, type ServiceImpl } from "@connectrpc/connect";
import { pause, systemClock } from "../platform/index.ts";
import { health as wire } from "../protocol/index.ts";
import { connectErrorOf } from "./call-errors.ts";
import { newClient, occupy } from "./callers.ts";
import type { Health } from "./health.ts";
import type { ResolvedLimits } from "./limits.ts";

const services = ["", "holdfast.v1.Locks", "holdfast.v1.Session"];

/** The interval between two readings of the status for a watcher. */
const LOOK_MS = 1_000;

const { SERVING, NOT_SERVING, SERVICE_UNKNOWN } = wire.HealthCheckResponse_ServingStatus;

export function healthService(
  health: Health,
  limits: ResolvedLimits,
  leaving: AbortSignal,
): ServiceImpl<typeof wire.Health> {
  // Callers without tokens share the limits.
  const anyone = newClient("anyone", "");
  const statusNow = async () => ((await health.isReady()) ? SERVING : NOT_SERVING);
  const enter = (signal: AbortSignal, limit: "maxCalls" | "maxWatches") => {
    try {
      occupy(anyone, limit, limits, signal);
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
      const over = AbortSignal.any([signal, leaving]);
      if (!services.includes(service)) {
        yield { status: SERVICE_UNKNOWN };
        while (!over.aborted) await pause(systemClock, LOOK_MS, over);
        return;
      }
      for (let sent: unknown; ; ) {
        const status = await statusNow();
        if (status !== sent) yield { status };
        sent = status;
        if (over.aborted) return;
        await pause(systemClock, LOOK_MS, over);
      }
    },
  };
}
