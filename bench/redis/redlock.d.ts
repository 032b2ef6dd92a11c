/** The package has types, but its export map hides them. These are the few that are used here. */
declare module "redlock" {
  import type { Redis } from "ioredis";

  export interface Settings {
    /** -1 tries for ever. */
    readonly retryCount: number;
  }

  export interface Lock {
    release(): Promise<unknown>;
  }

  class Redlock {
    constructor(clients: readonly Redis[], settings?: Settings);
    acquire(resources: readonly string[], durationMs: number): Promise<Lock>;
    on(event: "error", listener: (error: unknown) => void): this;
  }

  // biome-ignore lint/style/noDefaultExport: This is how the package exports it.
  export { Redlock as default };
}
