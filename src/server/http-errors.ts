/** Answers to requests that reach no service. */
import type { Http2ServerRequest } from "node:http2";
import { Code } from "@connectrpc/connect";
import type { UniversalHandler } from "@connectrpc/connect/protocol";
import { codeToString } from "@connectrpc/connect/protocol-connect";
import { nearest } from "../store/index.ts";
import { type Exchange, isHttp2 } from "./exchange.ts";

export interface HttpError {
  readonly status: number;
  readonly code: Code;
  readonly message: string;
  readonly headers?: Readonly<Record<string, string>>;
}

/** Answers with a status of gRPC, or with JSON that clients of Connect read as an error. */
export async function sendError(
  exchange: Exchange,
  { status, code, message, headers }: HttpError,
): Promise<void> {
  const { request } = exchange;
  if (isHttp2(request) && /^application\/grpc(\+|;|$)/.test(request.headers["content-type"] ?? "")) {
    refuseCall(request, code, message);
    return;
  }
  const body = JSON.stringify({ code: codeToString(code), message });
  await exchange.send(status, { "content-type": "application/json", ...headers }, `${body}\n`);
}

/** Answers a call of gRPC with only a status. Connect uses the same numbers. */
export function refuseCall({ stream }: Http2ServerRequest, status: Code, message: string): void {
  stream.on("error", () => {});
  stream.respond(
    {
      ":status": 200,
      "content-type": "application/grpc+proto",
      "grpc-status": `${status}`,
      "grpc-message": encodeURIComponent(message),
    },
    { endStream: true },
  );
  stream.close();
}

/** Paths besides those of the services. */
export const pagePaths: readonly string[] = ["/healthz", "/readyz", "/metrics"];

const JSON_CALL = "curl -H 'content-type: application/json' -d '{}'";

export const httpErrors = {
  badHost: (host: string | undefined): HttpError => ({
    status: 400,
    code: Code.InvalidArgument,
    message:
      host === undefined
        ? "The request has no Host. Send a header such as Host: localhost."
        : `The Host of the request is ${show(host)}. It must be a name or an address, with or without a port.`,
  }),

  forbidden: (message: string): HttpError => ({ status: 403, code: Code.PermissionDenied, message }),

  unexpected: (): HttpError => ({
    status: 500,
    code: Code.Internal,
    message: "The server failed at this request. Its log has the error.",
  }),

  noSuchPath: (path: string, calls: readonly string[]): HttpError => {
    const known = [...pagePaths, ...calls];
    const meant = path.length > 100 ? undefined : nearest(path, known);
    const advice = meant === undefined ? `The paths are ${known.join(", ")}.` : `Did you mean ${meant}?`;
    return {
      status: 404,
      code: Code.Unimplemented,
      message: `The path ${show(path)} does not exist. ${advice}`,
    };
  },

  /** For a status that Connect sends without a body. */
  ofStatus: (status: number, handler: UniversalHandler): HttpError => {
    const name = handler.method.name;
    if (status === 405) {
      const allow = handler.allowedMethods.join(", ");
      const message = `${name} takes ${allow}. With curl: ${JSON_CALL}.`;
      return { status, code: Code.Unimplemented, message, headers: { allow } };
    }
    if (status === 415) {
      const types = contentTypes.filter(handler.supportedContentType).join(", ");
      const message = `The content-type of ${name} must be one of ${types}.`;
      return { status, code: Code.InvalidArgument, message, headers: { "accept-post": types } };
    }
    return { status, code: Code.Unimplemented, message: `${name} does not accept this request.` };
  },
};

const contentTypes = [
  "application/json",
  "application/proto",
  "application/connect+json",
  "application/connect+proto",
  "application/grpc",
  "application/grpc-web",
];

/** A text of a client, cut and escaped for a message. */
export function show(text: string): string {
  return JSON.stringify(text.length > 100 ? `${text.slice(0, 100)}…` : text);
}
