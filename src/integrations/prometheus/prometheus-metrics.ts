import { register as defaultRegister, type Metric, type Registry } from "prom-client";
import { checkKeyLabel, type KeyLabel } from "../../client/index.ts";
import { checkOptionNames, invalid, type Unsubscribe } from "../../store/index.ts";
import { ClientMetrics } from "./client-metrics.ts";

export interface PrometheusOptions {
  /** Where the metrics are registered. Default: the default registry of prom-client. */
  readonly register?: Registry;
  /**
   * Whether metrics have a label `key`, and what it is: a function makes it of each key. Every value is a time series of its own,
   * so make few of them: `(key) => key.split(":")[0]`. Default `false`: there is no such label.
   */
  readonly key?: KeyLabel;
}

/**
 * Counts what all clients of this process do. Names and buckets are those of the lock server's metrics, where both have them.
 * Returns what ends the counting and takes the metrics out of the registry. Throws `INVALID_ARGUMENT` where the registry
 * has a metric of one of the names already.
 *
 * @example
 * const stop = prometheusMetrics({ register });
 */
export function prometheusMetrics(options: PrometheusOptions = {}): Unsubscribe {
  checkOptionNames("prometheusMetrics", options, { register: true, key: true });
  const { register = defaultRegister, key = false } = options;
  if (typeof register?.registerMetric !== "function") {
    throw invalid(`register must be a Registry of prom-client, not ${register}.`);
  }
  const metrics = new ClientMetrics(checkKeyLabel("key", key));
  const taken = metrics.all.find(({ name }) => register.getSingleMetric(name) !== undefined);
  if (taken !== undefined) {
    throw invalid(
      `register already has a metric ${taken.name}. Call prometheusMetrics once per registry, or pass another registry.`,
    );
  }
  // A registry calls no more than `get` and `reset`, and knows a metric by its name.
  for (const metric of metrics.all) register.registerMetric(metric as unknown as Metric<string>);
  const stop = metrics.listen();
  return () => {
    stop();
    for (const { name } of metrics.all) register.removeSingleMetric(name);
  };
}
