import { AsyncLocalStorage } from "node:async_hooks";
import { Inject } from "@nestjs/common";
import type { Lease, LockOptions } from "../../client/index.ts";
import { checkChoice, invalid } from "../../store/index.ts";
import type { HostedLocks } from "../frameworks/index.ts";
import { HOSTED_LOCKS } from "./holdfast-module.ts";

/** Options of `@Locked`: those of a mutex, and these. */
export interface LockedOptions extends LockOptions {
  /**
   * What a call does when somebody else has the lock: `"wait"` for it, or `"skip"`, which resolves to `undefined` without calling
   * the method. Default "wait".
   */
  readonly contended?: "wait" | "skip";
  /** How long a call waits; then it throws AcquireTimeoutError. Default: without end. */
  readonly waitMs?: number;
  /** Higher goes first. 0 to 65,535. Default 0. */
  readonly priority?: number;
  /** For people: why the lock is asked for. Default: the class and the method. */
  readonly info?: string;
}

type AsyncMethod = (...args: never[]) => Promise<unknown>;

/** A decorator of methods that return a promise. */
export type LockedDecorator<Args extends unknown[]> = <Method extends AsyncMethod>(
  target: object,
  name: string | symbol,
  descriptor: TypedPropertyDescriptor<Method> &
    (Parameters<Method> extends readonly [...Args, ...unknown[]] ? unknown : never),
) => void;

/** The lease of the method that the running code was called from. */
const running = new AsyncLocalStorage<Lease>();

/** Where Nest puts the client on instances of classes with locked methods. */
const CLIENT = Symbol("holdfast.client");

interface Instance {
  readonly [CLIENT]?: HostedLocks;
}

/**
 * Runs the method only while it holds a mutex: of this key, or of the one that a function makes of the arguments. The body has
 * the lease by `currentLease()`, and should stop when its signal aborts.
 *
 * @example
 * class Accounts {
 *   \@Locked((id: string) => `account:${id}`, { waitMs: 5_000 })
 *   async settle(id: string): Promise<void> { … }
 * }
 */
export function Locked<Args extends unknown[] = []>(
  key: string | ((...args: Args) => string),
  options: LockedOptions = {},
): LockedDecorator<Args> {
  const { contended = "wait", waitMs, priority, info, ...lockOptions } = options;
  checkChoice("contended", contended, ["wait", "skip"]);
  if (contended === "skip" && waitMs !== undefined) {
    throw invalid(
      `waitMs ${waitMs} has no effect with contended "skip", which does not wait. Remove one of them.`,
    );
  }
  return (target, name, descriptor) => {
    const method = descriptor.value as ((...args: unknown[]) => Promise<unknown>) | undefined;
    if (typeof method !== "function" || typeof target === "function") {
      throw invalid(`@Locked works on methods of instances only. "${String(name)}" is not one.`);
    }
    Inject(HOSTED_LOCKS)(target, CLIENT);
    const asked = {
      info: info ?? `${target.constructor.name}.${String(name)}`,
      ...(priority === undefined ? {} : { priority }),
    };

    async function locked(this: Instance, ...args: unknown[]): Promise<unknown> {
      const hosted = this[CLIENT] ?? notInjected(target, name);
      const lock = hosted.locks.mutex(
        typeof key === "string" ? key : key.apply(this, args as unknown as Args),
        lockOptions,
      );
      const body = (lease: Lease) => running.run(lease, () => (method as typeof locked).apply(this, args));
      if (contended === "skip") {
        const result = await lock.tryRun(body, asked);
        return result.ran ? result.value : undefined;
      }
      const waiting = waitMs === undefined ? asked : { ...asked, waitMs };
      return lock.run(body, { ...waiting, signal: hosted.stopping });
    }

    takeOver(method, locked);
    descriptor.value = locked as unknown as NonNullable<typeof descriptor.value>;
  };
}

/** The lease of the `@Locked` method that the running code was called from, the innermost one; undefined outside of all. */
export function currentLease(): Lease | undefined {
  return running.getStore();
}

/** Whatever other decorators have noted on the method is true of what takes its place: a route, a schedule, a guard. */
function takeOver(method: object & { readonly name: string }, locked: object): void {
  for (const key of Reflect.getOwnMetadataKeys(method)) {
    Reflect.defineMetadata(key, Reflect.getOwnMetadata(key, method), locked);
  }
  Object.defineProperty(locked, "name", { value: method.name, configurable: true });
}

function notInjected(target: object, name: string | symbol): never {
  throw invalid(
    `${target.constructor.name}.${String(name)} is @Locked, but Nest did not make its object with HoldfastModule. ` +
      "Import HoldfastModule.forRoot in the application's module, and let Nest make the object.",
  );
}
