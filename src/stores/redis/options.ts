import { bounds, checkInteger, checkOptionNames, invalid } from "../../store/index.ts";

export interface RedisStoreOptions {
  /** The beginning of all keys of this store. No braces. Default "holdfast". */
  readonly keyPrefix?: string;
  /** The number of slots of a cluster that the keys are spread over. All clients must agree. 1 to 1,024. Default 1, in a cluster 16. */
  readonly partitions?: number;
  /** The number of claims that may wait for one key before `QUEUE_FULL`. Default 10,000. */
  readonly maxWaiters?: number;
}

export function checkOptions(options: RedisStoreOptions, isCluster: boolean): Required<RedisStoreOptions> {
  checkOptionNames("redisStore", options, { keyPrefix: true, partitions: true, maxWaiters: true });
  const {
    keyPrefix = "holdfast",
    partitions = isCluster ? 16 : 1,
    maxWaiters = bounds.defaultMaxWaiters,
  } = options;
  if (typeof keyPrefix !== "string" || !/^[^{}\p{Cc}]{1,64}$/u.test(keyPrefix)) {
    throw invalid(`keyPrefix must be 1 to 64 characters without braces, not ${JSON.stringify(keyPrefix)}.`);
  }
  checkInteger("partitions", partitions, 1, 1_024);
  checkInteger("maxWaiters", maxWaiters, 0, 1_000_000);
  return { keyPrefix, partitions, maxWaiters };
}
