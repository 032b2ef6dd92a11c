/** A map database without a clock: claims hang on keepers, which end when a test says so. */
import type { Clock } from "holdfast";
import type { CasDriver, Change, ChangeResult, Keepers } from "holdfast/cas";
import { MapDatabase, mapDriver } from "../../../examples/driver/map-driver.ts";

export class KeptDatabase extends MapDatabase {
  readonly alive = new Set<string>();
  readonly endings: ((keeper: string) => void)[] = [];
  /** How often a keeper has shown a sign of life. */
  signs = 0;
  /** How often a change was not made because of what it took for granted of keepers. */
  refusals = 0;

  /** The process is dead, or has not been heard of for too long. */
  end(keeper: string): void {
    this.alive.delete(keeper);
    for (const tell of this.endings) tell(keeper);
  }

  /** The same, and nobody hears of it but by a change. */
  endUnnoticed(keeper: string): void {
    this.alive.delete(keeper);
  }
}

export interface KeptDriver extends CasDriver {
  readonly keepers: Keepers;
  /** For how long the keepers are proven to live from each swap on. Default: their whole life. */
  provenForMs: number;
}

/** What a process is called, its keepers are called after. */
export function keptDriver(database: KeptDatabase, clock: Clock, name: string): KeptDriver {
  const near = mapDriver(database);
  const own = new Set<string>();
  const ended = new Set<string>();
  const listeners: ((keeper: string | undefined) => void)[] = [];
  let lives = 0;
  let shownMs = clock.monotonicMs();

  const lifeMs = (keeper: string) => Number(keeper.split("/")[1]);
  const learn = (keeper: string) => {
    // What has ended never comes back, so the next one has another name.
    if (own.delete(keeper)) lives++;
    ended.add(keeper);
    for (const listener of listeners) listener(keeper);
  };
  database.endings.push(learn);

  const keepers: Keepers = {
    ready: () => undefined,
    forLife(ms) {
      const keeper = `${name}${lives === 0 ? "" : `.${lives}`}/${Math.ceil(ms / 1_000) * 1_000}`;
      if (!own.has(keeper)) database.alive.add(keeper);
      own.add(keeper);
      return keeper;
    },
    isOwn: (keeper) => own.has(keeper),
    hasEnded: (keeper) => ended.has(keeper),
    lifeMs,
    provenUntilMs: (keeper) =>
      own.has(keeper) ? shownMs + Math.min(lifeMs(keeper), driver.provenForMs) : Number.NEGATIVE_INFINITY,
    async check(names) {
      for (const keeper of names) if (!database.alive.has(keeper)) learn(keeper);
    },
    stamp: () => database.versions << 20n,
    onEnd: (listener) => void listeners.push(listener),
  };

  function refusal({ key, keepers: assumed }: Change): ChangeResult | undefined {
    if (assumed === undefined) return undefined;
    const lost = assumed.own.filter((keeper) => !database.alive.has(keeper));
    for (const keeper of lost) learn(keeper);
    if (lost.length > 0) return { state: "untimely" };
    const gone = assumed.alive.filter((keeper) => !database.alive.has(keeper));
    for (const keeper of gone) learn(keeper);
    const revived = assumed.ended.some((keeper) => database.alive.has(keeper));
    return gone.length > 0 || revived ? { state: "conflict", current: database.rows.get(key) } : undefined;
  }

  const driver: KeptDriver = {
    ...near,
    checksTime: false,
    keepers,
    provenForMs: Number.POSITIVE_INFINITY,
    async swap({ changes, ...batch }) {
      if (changes.some((change) => change.keepers?.fresh)) database.signs++;
      shownMs = clock.monotonicMs();
      const results: ChangeResult[] = [];
      for (const change of changes) {
        const refused = refusal(change);
        if (refused !== undefined) database.refusals++;
        const { results: made } = await near.swap({
          ...batch,
          changes: refused === undefined ? [change] : [],
          earliestMs: 0,
          latestMs: Number.MAX_SAFE_INTEGER,
        });
        results.push(refused ?? (made[0] as ChangeResult));
      }
      return { results, nowMs: clock.wallMs() };
    },
  };
  return driver;
}
