/** The open sessions of a server. */
import type { Http2ServerRequest, Http2ServerResponse } from "node:http2";
import { Code } from "@connectrpc/connect";
import { SESSION_PATH } from "../protocol/index.ts";
import { type Caller, occupy } from "./callers.ts";
import type { ServerContext } from "./context.ts";
import { refuseCall } from "./http-errors.ts";
import type { AnyRequest } from "./listener.ts";
import { peerOf } from "./peer.ts";
import { ServerSession } from "./session.ts";

/** Sessions speak gRPC over HTTP/2 only. */
export function isSessionRequest(request: AnyRequest): request is Http2ServerRequest {
  return (
    request.url === SESSION_PATH &&
    request.httpVersionMajor === 2 &&
    request.method === "POST" &&
    /^application\/grpc(\+proto)?$/.test(request.headers["content-type"] ?? "")
  );
}

export class Sessions {
  readonly #context: ServerContext;
  readonly #open = new Set<ServerSession>();
  #isLeaving = false;

  constructor(context: ServerContext) {
    this.#context = context;
  }

  open(request: Http2ServerRequest, response: Http2ServerResponse): void {
    const { callers, metrics, limits, errors } = this.#context;
    const peer = peerOf(request);
    const refuse = (code: Code, error: unknown) => {
      errors.failed(error, { peer });
      refuseCall(request, code, (error as Error).message);
    };
    let caller: Caller;
    try {
      caller = callers.identify(request.headers.authorization, `anyone at ${peer.address}`, peer);
    } catch (error) {
      refuse(Code.Unauthenticated, error);
      return;
    }
    if (this.#isLeaving) {
      refuseCall(request, Code.Unavailable, "The server is stopping.");
      return;
    }
    let free: () => void;
    try {
      free = occupy(caller.client, "maxCalls", limits);
    } catch (error) {
      refuse(Code.ResourceExhausted, error);
      return;
    }
    const session: ServerSession = new ServerSession(response, this.#context, caller, () => {
      free();
      metrics.sessions--;
      this.#open.delete(session);
    });
    metrics.sessions++;
    this.#open.add(session);
  }

  /** Asks all clients to use another server. */
  leave(reason: string): void {
    this.#isLeaving = true;
    for (const session of this.#open) session.leave(reason);
  }
}
