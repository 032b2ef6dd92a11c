/** What the frameworks have in common: who is let in to write, and what the others are told. */
import { HoldfastError } from "../store/index.ts";
import { type Fenced, StaleFenceError } from "./fence.ts";
import type { FenceGate, FencePass } from "./gate.ts";
import { FENCE_HEADER, parseFenceHeader } from "./header.ts";

/** Options of the middleware. `R` is what the framework calls a request. */
export interface FenceHttpOptions<R> {
  /**
   * What a request writes to. Default: the key in its header. A service that several kinds of clients write to should say so
   * itself, because a client that names another key than it writes to is guarded by the wrong mark.
   */
  readonly resource?: (request: R) => string;
  /** The methods that need a fence. Default: all but GET, HEAD, OPTIONS and TRACE. */
  readonly methods?: readonly string[];
  /** How long a request waits for the one before it to be done with the same resource; then it is answered 503. Default 30,000. */
  readonly waitMs?: number;
}

/** An answer to a request that is not let in. */
export interface FenceRefusal {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: {
    readonly code: string;
    readonly message: string;
    readonly key?: string;
    readonly fence?: string;
    readonly mark?: string;
  };
}

const safeMethods = new Set(["GET", "HEAD", "OPTIONS", "TRACE"]);

export function needsFence(method: string | undefined, methods: readonly string[] | undefined): boolean {
  const name = (method ?? "").toUpperCase();
  return methods === undefined ? !safeMethods.has(name) : methods.some((each) => each.toUpperCase() === name);
}

export async function admit<R>(
  gate: FenceGate,
  header: string | readonly string[] | undefined,
  request: R,
  options: FenceHttpOptions<R>,
  signal: AbortSignal | undefined,
): Promise<FencePass | FenceRefusal> {
  if (header === undefined) return missing();
  let lease: Fenced;
  let resource: string | undefined;
  try {
    lease = parseFenceHeader(typeof header === "string" ? header : header.join(", "));
    resource = options.resource?.(request) ?? lease.key;
    if (resource === undefined)
      return malformed(`${FENCE_HEADER} must name a key here. Add ";key=…" to its value.`);
  } catch (error) {
    if (error instanceof HoldfastError && error.code === "INVALID_ARGUMENT") return malformed(error.message);
    throw error;
  }
  try {
    const waitMs = options.waitMs ?? 30_000;
    return await gate.enter(lease, { resource, waitMs, ...(signal === undefined ? {} : { signal }) });
  } catch (error) {
    return refusalOf(error);
  }
}

/** The next best code of HTTP: 428 asks for the condition that is missing, and 412 says that it does not hold. */
function missing(): FenceRefusal {
  const message = `The request needs a ${FENCE_HEADER} header with the fence of the lease, such as "1763259694000000;key=nightly-report".`;
  return { status: 428, headers: {}, body: { code: "INVALID_ARGUMENT", message } };
}

function malformed(message: string): FenceRefusal {
  return { status: 400, headers: {}, body: { code: "INVALID_ARGUMENT", message } };
}

const passing = new Set(["ACQUIRE_TIMEOUT", "STORE_UNAVAILABLE", "CLOSED"]);

/** What is wrong with this side's storage is nobody's business but this side's: that is told without details. */
function refusalOf(error: unknown): FenceRefusal {
  if (error instanceof StaleFenceError) {
    const { code, message, key = "", fence, mark } = error;
    const marked = mark === undefined ? {} : { mark: String(mark) };
    return { status: 412, headers: {}, body: { code, message, key, fence: String(fence), ...marked } };
  }
  if (!(error instanceof HoldfastError)) throw error;
  if (error.code === "INVALID_ARGUMENT") return malformed(error.message);
  if (passing.has(error.code)) {
    const message =
      error.code === "ACQUIRE_TIMEOUT"
        ? error.message
        : "The service cannot check the fence now. Try again later.";
    return { status: 503, headers: { "Retry-After": "1" }, body: { code: error.code, message } };
  }
  return {
    status: 500,
    headers: {},
    body: { code: error.code, message: "The service cannot check the fence. Its log has the error." },
  };
}

const passes = new WeakMap<object, FencePass>();

export function rememberPass(request: object, pass: FencePass): void {
  passes.set(request, pass);
}

/**
 * The pass that a request was let in with: its resource and fence, for a handler that writes them on. Undefined where the
 * middleware did not ask for one.
 */
export function fencePassOf(request: object): FencePass | undefined {
  return passes.get(request);
}
