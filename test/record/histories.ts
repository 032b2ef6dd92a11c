/**
 * Random histories of one key: who asks for what, when. All values are within the bounds of `validation.ts`, so a
 * history can be played to any implementation of the record's rules.
 */
import fc from "fast-check";
import { type ClaimRef, type ClaimRequest, type RenewRef, UNLIMITED } from "../../src/store/store.ts";

export const HISTORY_KEY = "k";

/** Texts that break quoting, escaping and the counting of bytes. */
export const ODD_TEXT = 'é"\\😀';

/** 256 bytes, which is the most for some texts, and more than one byte can count. */
const LONG_TEXT = ODD_TEXT.repeat(32);

/** The claim that has such an id. */
const ODD_NUMBER = 13;

interface Shape {
  readonly weight: number;
  readonly limit: number;
}

const exclusive: Shape = { weight: 1, limit: 1 };
const shared: Shape = { weight: 1, limit: UNLIMITED };
const permits = (weight: number, limit: number): Shape => ({ weight, limit });

/** The claims that one run is made of: mutexes, readers and writers, a semaphore, and mixes that nobody would plan. */
const palettes: readonly (readonly Shape[])[] = [
  [exclusive],
  [shared, shared, exclusive],
  [permits(1, 4), permits(2, 4), permits(4, 4)],
  [permits(1, 12), shared],
  [exclusive, shared, permits(2, 3), permits(1, 9), permits(3, UNLIMITED), permits(2, 5)],
];

const priorities = [0, 0, 3, 0, 1, 0, 65_535];

export type Operation =
  | { readonly does: "acquire"; readonly request: ClaimRequest; readonly maxWaiters: number }
  | { readonly does: "renew"; readonly ref: RenewRef }
  | { readonly does: "release"; readonly ref: ClaimRef }
  | { readonly does: "describe"; readonly aheadMs: number; readonly maxClaims: number };

/** One operation on a record. `reload` writes it down and reads it back. */
export type Step = Operation | { readonly does: "settle" } | { readonly does: "reload" };

/** A step, and how far the store's time and stamp have moved when it comes. */
export interface TimedStep {
  readonly afterMs: number;
  /** By how much the store's time is uncertain. */
  readonly unsureMs: number;
  readonly stampBy: number;
  readonly step: Step;
}

/** The choices that all steps of one run share, so that their claims meet. */
export interface Scene {
  readonly palette: number;
  readonly ids: number;
  readonly maxWaiters: number;
  /** Long-lived claims pile up; short-lived ones expire in the middle of things. */
  readonly ttlMs: number;
}

export const sceneArbitrary: fc.Arbitrary<Scene> = fc.record({
  palette: fc.nat(palettes.length - 1),
  ids: fc.constantFrom(26, 26, 14, 4),
  maxWaiters: fc.constantFrom(30, 30, 9, 2, 0),
  ttlMs: fc.constantFrom(400, 100, 20),
});

/** Who asks. The same number is the same id with the same shape, unless it is `odd`, which reuses the id wrongly. */
const whoArbitrary = fc.record({
  number: fc.nat(9_999),
  // A token equal to the id is what the format leaves out, so both kinds are needed.
  takeover: fc.nat(3).map((roll) => roll === 3),
});

/** A heartbeat or a release. */
export const rawReferenceArbitrary = fc.record({
  does: fc.constantFrom("renew" as const, "release" as const),
  who: whoArbitrary,
  asAdministrator: fc.nat(4).map((roll) => roll === 4),
  ttlFactor: fc.constantFrom(undefined, undefined, 0.5, 3),
});

/** A request that any store takes. In a scene it becomes an {@link Operation}. */
export const rawOperationArbitrary = fc.oneof(
  {
    weight: 10,
    arbitrary: fc.record({
      does: fc.constant("acquire" as const),
      who: whoArbitrary,
      odd: fc.nat(19).map((roll) => roll === 7),
      ttlFactor: fc.constantFrom(1, 1, 2, 0.5),
      wait: fc.nat(5).map((roll) => roll !== 5),
      owner: fc.constantFrom("a", "b", "a", "b", "", ODD_TEXT),
      label: fc.constantFrom("", "", "x", ODD_TEXT, LONG_TEXT),
    }),
  },
  { weight: 5, arbitrary: rawReferenceArbitrary },
  {
    weight: 1,
    arbitrary: fc.record({
      does: fc.constant("describe" as const),
      aheadMs: fc.nat(60),
      maxClaims: fc.constantFrom(0, 1, 2, 3, 6, 1_000),
    }),
  },
);

const rawStepArbitrary = fc.oneof(
  { weight: 8, arbitrary: rawOperationArbitrary },
  { weight: 1, arbitrary: fc.record({ does: fc.constantFrom("settle" as const, "reload" as const) }) },
);

export const momentArbitrary = fc.record({
  unsureMs: fc.constantFrom(0, 0, 0, 3, 30),
  afterMs: fc.oneof(
    { weight: 40, arbitrary: fc.constantFrom(0, 0, 1) },
    { weight: 15, arbitrary: fc.nat(8) },
    { weight: 1, arbitrary: fc.nat(1_200) },
    // A store's clock that is set back must do no harm either.
    { weight: 3, arbitrary: fc.integer({ min: -5, max: -1 }) },
  ),
  stampBy: fc.constantFrom(0, 0, 1, 2, 40, -30),
});

// Small values are not favoured here: crowds need many different ids and many steps.
export const historyArbitrary: fc.Arbitrary<TimedStep[]> = fc
  .noBias(
    fc.tuple(
      sceneArbitrary,
      fc.array(fc.tuple(momentArbitrary, rawStepArbitrary), { maxLength: 140, size: "max" }),
    ),
  )
  .map(([scene, steps]) =>
    steps.map(([moment, raw]): TimedStep => ({ ...moment, step: resolveStep(raw, scene) })),
  );

type RawStep = typeof rawStepArbitrary extends fc.Arbitrary<infer Raw> ? Raw : never;
export type RawOperation = typeof rawOperationArbitrary extends fc.Arbitrary<infer Raw> ? Raw : never;

function resolveStep(raw: RawStep, scene: Scene): Step {
  switch (raw.does) {
    case "settle":
    case "reload":
      return { does: raw.does };
    default:
      return resolveOperation(raw, scene, HISTORY_KEY);
  }
}

export function resolveOperation(raw: RawOperation, scene: Scene, key: string): Operation {
  switch (raw.does) {
    case "describe":
      return raw;
    case "acquire": {
      const { number, id, token } = resolveWho(raw.who, scene);
      const palette = palettes[scene.palette]!;
      const { weight, limit } = palette[(number + (raw.odd ? 1 : 0)) % palette.length]!;
      const priority = priorities[(number + (raw.odd ? 1 : 0)) % priorities.length]!;
      const ttlMs = scene.ttlMs * raw.ttlFactor;
      const label = { owner: raw.owner, info: raw.label, application: raw.label };
      const request = {
        key,
        id,
        token,
        weight,
        limit,
        priority,
        ttlMs,
        wait: raw.wait,
        ...label,
      };
      return { does: "acquire", request, maxWaiters: scene.maxWaiters };
    }
    case "renew":
    case "release": {
      const { id, token } = resolveWho(raw.who, scene);
      const ref = raw.asAdministrator ? { key, id } : { key, id, token };
      if (raw.does === "release") return { does: "release", ref };
      const asked = raw.ttlFactor === undefined ? {} : { ttlMs: scene.ttlMs * raw.ttlFactor };
      return { does: "renew", ref: { ...ref, ...asked } };
    }
  }
}

const letter = (number: number) => String.fromCharCode("a".charCodeAt(0) + number);

function resolveWho(who: { number: number; takeover: boolean }, scene: Scene) {
  const number = who.number % scene.ids;
  const id = number === ODD_NUMBER ? ODD_TEXT : number < 26 ? letter(number) : `c${number}`;
  return { number, id, token: who.takeover ? `${id}2` : id };
}

/** A step as a person reads it. */
export function say(step: Step): string {
  switch (step.does) {
    case "acquire": {
      const { id, token, weight, limit, priority, ttlMs, wait, owner } = step.request;
      const shape = `weight ${weight} limit ${limit === UNLIMITED ? "∞" : limit} priority ${priority}`;
      const manner = wait ? `wait (at most ${step.maxWaiters} waiters)` : "try";
      return `acquire ${id} as ${token} for ${JSON.stringify(owner)}, ${shape}, ttl ${ttlMs}, ${manner}`;
    }
    case "renew":
      return `renew ${step.ref.id} as ${step.ref.token ?? "administrator"}, ttl ${step.ref.ttlMs ?? "its own"}`;
    case "release":
      return `release ${step.ref.id} as ${step.ref.token ?? "administrator"}`;
    case "describe":
      return `describe at most ${step.maxClaims} claims, ${step.aheadMs} ms ahead`;
    case "settle":
      return "settle";
    case "reload":
      return "encode and decode";
  }
}
