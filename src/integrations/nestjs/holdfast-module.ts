import {
  type BeforeApplicationShutdown,
  type DynamicModule,
  type FactoryProvider,
  Inject,
  Module,
  type ModuleMetadata,
  type OnApplicationShutdown,
  type Provider,
} from "@nestjs/common";
import { invalid } from "../../store/index.ts";
import { type HostedLocks, type HostOptions, hostLocks } from "../frameworks/index.ts";

/** The token of the client: `@Inject(LOCKS)`, which is `@InjectLocks()`. */
export const LOCKS = Symbol.for("holdfast.locks");

/** What `@Locked` works with. */
export const HOSTED_LOCKS = Symbol.for("holdfast.hosted-locks");

const OPTIONS = Symbol.for("holdfast.options");

/** Options of `HoldfastModule.forRoot`: a `store` or `locks`, `graceMs`, and all options of `createLocks`. */
export interface HoldfastModuleOptions extends HostOptions {}

/** Options of `HoldfastModule.forRootAsync`. */
export interface HoldfastModuleAsyncOptions {
  /** The modules that export what the factory needs. */
  readonly imports?: ModuleMetadata["imports"];
  /** What the factory is called with. */
  readonly inject?: FactoryProvider["inject"];
  // biome-ignore lint/suspicious/noExplicitAny: what is injected is known to Nest alone.
  readonly useFactory: (...args: any[]) => HoldfastModuleOptions | Promise<HoldfastModuleOptions>;
}

/** Injects the client, of type `Locks`. */
export const InjectLocks = (): ReturnType<typeof Inject> => Inject(LOCKS);

/**
 * Makes one client for the application, global to its modules, and closes it with the application.
 *
 * Nest stops in this order: `beforeApplicationShutdown`, the end of listening and of the requests in progress, then
 * `onApplicationShutdown`. At the first, calls that wait in `@Locked` give up, so that no request holds the application up. At
 * the last the client is closed, when no handler runs any more; being global, this module comes after all others.
 */
export class HoldfastModule implements BeforeApplicationShutdown, OnApplicationShutdown {
  readonly #hosted: HostedLocks;

  /** @internal */
  constructor(hosted: HostedLocks) {
    this.#hosted = hosted;
  }

  static forRoot(options: HoldfastModuleOptions): DynamicModule {
    // By a function, because some versions of Nest read values through and through to tell modules apart.
    return moduleOf({ provide: OPTIONS, useFactory: () => options }, []);
  }

  static forRootAsync(options: HoldfastModuleAsyncOptions): DynamicModule {
    const { imports = [], inject = [], useFactory } = options;
    if (typeof useFactory !== "function") {
      throw invalid("forRootAsync needs useFactory, a function that returns the options of forRoot.");
    }
    return moduleOf({ provide: OPTIONS, inject, useFactory }, imports);
  }

  beforeApplicationShutdown(): void {
    this.#hosted.stop();
  }

  async onApplicationShutdown(): Promise<void> {
    await this.#hosted.close();
  }
}

// What decorators would do. Called as functions they need no setting of anybody's compiler.
Module({})(HoldfastModule);
Inject(HOSTED_LOCKS)(HoldfastModule, undefined, 0);

function moduleOf(options: Provider, imports: NonNullable<ModuleMetadata["imports"]>): DynamicModule {
  const hosted = { provide: HOSTED_LOCKS, inject: [OPTIONS], useFactory: hostLocks };
  const locks = {
    provide: LOCKS,
    inject: [HOSTED_LOCKS],
    useFactory: (client: HostedLocks) => client.locks,
  };
  return {
    module: HoldfastModule,
    global: true,
    imports,
    providers: [options, hosted, locks],
    exports: [HOSTED_LOCKS, LOCKS],
  };
}
