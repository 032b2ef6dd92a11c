/** The open sessions of a server. */
import type { Http2ServerRequest, Http2ServerResponse } from "node:http2";
import { Code } from "@connectrpc/connect";
import { SESSION_PATH } from "../protocol/index.ts";
import type { Audit } from "./audit.ts";
import type { GuardedStore } from "./guarded-store.ts";
import { refuseCall } from "./http-errors.ts";
import type { Identities, Visitor } from "./identity.ts";
import type { Kept } from "./kept.ts";
import type { ResolvedLimits } from "./limits.ts";
import type { AnyRequest } from "./listener.ts";
import type { Metrics } from "./metrics.ts";
import { occupy } from "./quota.ts";
import { ServerSession } from "./session.ts";
import { sourceOf } from "./source.ts";

export interface SessionsContext {
  readonly store: GuardedStore;
  readonly limits: ResolvedLimits;
  readonly kept: Kept;
  readonly identities: Identities;
  readonly metrics: Metrics;
  readonly audit: Audit;
  onError(error: unknown): void;
  onDrop(reason: string): void;
  onUnexpected(error: unknown): void;
}

/** Whether somebody wants to open a session in the one way there is: gRPC over HTTP/2. */
export function isSessionRequest(request: AnyRequest): request is Http2ServerRequest {
  return (
    request.url === SESSION_PATH &&
    request.httpVersionMajor === 2 &&
    request.method === "POST" &&
    /^application\/grpc(\+proto)?$/.test(request.headers["content-type"] ?? "")
  );
}

export class Sessions {
  readonly #context: SessionsContext;
  readonly #open = new Set<ServerSession>();
  #left = false;

  constructor(context: SessionsContext) {
    this.#context = context;
  }

  open(request: Http2ServerRequest, response: Http2ServerResponse): void {
    const { identities, metrics, audit, onError } = this.#context;
    const source = sourceOf(request);
    let visitor: Visitor;
    try {
      visitor = identities.admit(request.headers.authorization, `anybody at ${source.address}`, source);
    } catch (error) {
      onError(error);
      audit.failed(error, { source });
      refuseCall(request, Code.Unauthenticated, (error as Error).message);
      return;
    }
    if (this.#left) {
      refuseCall(request, Code.Unavailable, "The server is stopping.");
      return;
    }
    let leave: () => void;
    try {
      leave = occupy(visitor.client, "maxCalls", this.#context.limits);
    } catch (error) {
      onError(error);
      refuseCall(request, Code.ResourceExhausted, (error as Error).message);
      return;
    }
    const session: ServerSession = new ServerSession(response, {
      ...this.#context,
      visitor,
      onError: (error) => {
        onError(error);
        audit.failed(error, visitor);
      },
      onEnd: () => {
        leave();
        metrics.sessions--;
        this.#open.delete(session);
      },
    });
    metrics.sessions++;
    this.#open.add(session);
  }

  /** Asks all clients to go elsewhere. */
  leave(reason: string): void {
    this.#left = true;
    for (const session of this.#open) session.leave(reason);
  }
}
