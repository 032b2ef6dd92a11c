/** Processes that share a map database, on a clock that a test owns, with every request on record. */
import type { ClaimRequest, Store } from "holdfast";
import { type CasDriver, type CasStoreOptions, casStore, type SwapBatch } from "holdfast/cas";
import { ManualClock } from "holdfast/testing";
import { onTestFinished } from "vitest";
import { MapDatabase, mapDriver } from "../../../examples/driver/map-driver.ts";
import { claimRequest } from "../../record/claim-request.ts";
import { distantDriver, type Journey, type Request } from "./distant-driver.ts";

export interface Process {
  readonly store: Store;
  /** What it has asked of the database, in order. */
  readonly requests: { readonly request: Request; readonly batch: SwapBatch | undefined }[];
  /** What the next requests meet on their way; those after them meet nothing. */
  readonly journeys: Journey[];
  /** What all requests meet that find no journey of their own. */
  usual: Journey;
}

export interface Scene {
  readonly clock: ManualClock;
  readonly database: MapDatabase;
  /** By how much the server's clock is ahead of the test's. */
  skewMs: number;
  process(options?: CasStoreOptions & { pushes?: boolean; wrap?: (driver: CasDriver) => CasDriver }): Process;
  /** Lets time pass until the promise settles. */
  soon<T>(promise: Promise<T>): Promise<T>;
}

export function createScene(): Scene {
  const clock = new ManualClock();
  const stores: Store[] = [];
  const scene: Scene = {
    clock,
    skewMs: 0,
    database: new MapDatabase(() => clock.wallMs() + scene.skewMs),
    process({ pushes = true, wrap = (driver: CasDriver) => driver, ...options } = {}) {
      const process: { -readonly [Name in keyof Process]: Process[Name] } = {
        store: undefined as unknown as Store,
        requests: [],
        journeys: [],
        usual: {},
      };
      const journey = (request: Request, batch: SwapBatch | undefined) => {
        process.requests.push({ request, batch });
        return process.journeys.shift() ?? process.usual;
      };
      const driver = distantDriver(wrap(mapDriver(scene.database)), { clock, journey, pushes });
      process.store = casStore(driver, { clock, random: () => 0.5, ...options });
      stores.push(process.store);
      return process;
    },
    async soon(promise) {
      let settled = false;
      const mark = () => {
        settled = true;
      };
      promise.then(mark, mark);
      for (let ms = 0; ms < 60_000 && !settled; ms++) await clock.advance(ms === 0 ? 0 : 1);
      return promise;
    },
  };
  onTestFinished(async () => {
    await scene.soon(Promise.all(stores.map((store) => store.close())));
  });
  return scene;
}

/** A try for a mutex, with a long life. */
export function attempt(key: string, id: string, asked: Partial<ClaimRequest> = {}): ClaimRequest {
  return claimRequest(id, { key, wait: false, ttlMs: 10_000, ...asked });
}

/** A request that waits. */
export function wait(key: string, id: string, asked: Partial<ClaimRequest> = {}): ClaimRequest {
  return attempt(key, id, { wait: true, ...asked });
}
