/**
 * One port for HTTP/1.1 and HTTP/2, with or without TLS.
 *
 * TLS negotiates the protocol. Without TLS the first bytes of a connection decide: HTTP/2 begins with "PRI ", which is not a
 * method of HTTP/1.1.
 */
import { once } from "node:events";
import { createServer as createHttp1, type IncomingMessage, type ServerResponse } from "node:http";
import {
  createServer as createHttp2,
  type Http2ServerRequest,
  type Http2ServerResponse,
  type ServerHttp2Session,
} from "node:http2";
import { type AddressInfo, createServer as createTcp, type Server, type Socket } from "node:net";
import { createServer as createTls, type TLSSocket } from "node:tls";
import type { ErrorLog } from "./error-log.ts";
import type { ResolvedLimits } from "./limits.ts";
import type { Metrics } from "./metrics.ts";

export type AnyRequest = IncomingMessage | Http2ServerRequest;
export type AnyResponse = ServerResponse | Http2ServerResponse;

export interface TlsOptions {
  /** The certificate chain, in PEM. */
  readonly cert: string | Buffer;
  /** Its private key, in PEM. */
  readonly key: string | Buffer;
  /** The CA that must have signed the certificates of clients (mutual TLS), in PEM. Default: clients need no certificate. */
  readonly clientCa?: string | Buffer;
}

export interface ListenerOptions {
  readonly host: string;
  readonly port: number;
  readonly tls: TlsOptions | undefined;
  readonly limits: ResolvedLimits;
  handle(request: AnyRequest, response: AnyResponse): void;
  readonly errors: ErrorLog;
  readonly metrics: Metrics;
}

export interface Listener {
  readonly host: string;
  readonly port: number;
  /** Accepts no more connections, and closes each as soon as it is idle. Resolves when all are closed. */
  drain(): Promise<void>;
  /** Closes all connections. Resolves when they are closed. */
  end(): Promise<void>;
}

/** The first bytes of an HTTP/2 connection. */
const PREFACE = Buffer.from("PRI ");

/** The bytes that a client may send ahead of reading, on a stream and on a connection. */
const STREAM_WINDOW = 1_048_576;
const CONNECTION_WINDOW = 4_194_304;

/** The interval of closing idle HTTP/1.1 connections while the server stops: Node emits no event when one becomes idle. */
const IDLE_MS = 50;

export async function listen(options: ListenerOptions): Promise<Listener> {
  const { limits, handle, errors, metrics } = options;
  const onSilent = () => errors.dropped("silent");
  const http1 = createHttp1(handle);
  http1.headersTimeout = limits.silenceMs;
  http1.requestTimeout = limits.silenceMs;
  http1.keepAliveTimeout = limits.silenceMs;
  // Node enforces these timeouts only for a server that listens. This server gets its connections from another one.
  http1.emit("listening");
  const http2 = createHttp2(
    {
      settings: {
        initialWindowSize: STREAM_WINDOW,
        maxConcurrentStreams: limits.maxStreams,
        maxHeaderListSize: 16_384,
      },
    },
    handle,
  );
  // Without these listeners Node answers such requests itself, without a timeout.
  http1.on("checkExpectation", handle);
  http2.on("checkExpectation", handle);
  http2.on("connect", handle);
  const sessions = new Set<ServerHttp2Session>();
  http2.on("session", (session) => {
    sessions.add(session);
    session.once("close", () => sessions.delete(session));
    session.setLocalWindowSize(CONNECTION_WINDOW);
    watchSilence(session, limits.silenceMs, onSilent);
  });
  http2.on("sessionError", () => {});

  const sockets = new Set<Socket>();
  const accept = (socket: Socket) => {
    sockets.add(socket);
    metrics.connections++;
    socket.once("close", () => {
      sockets.delete(socket);
      metrics.connections--;
    });
    socket.on("error", () => socket.destroy());
    socket.setNoDelay(true);
    socket.setKeepAlive(true, limits.silenceMs);
  };
  const hand = (socket: Socket, isHttp2: boolean) => {
    if (socket.destroyed) return;
    try {
      (isHttp2 ? http2 : http1).emit("connection", socket);
    } catch (error) {
      errors.unexpected(error);
      socket.destroy();
    }
  };

  const server = createServer(options, accept, (socket) => {
    if (options.tls !== undefined) {
      hand(socket, (socket as TLSSocket).alpnProtocol === "h2");
      return;
    }
    sniff(socket, limits.silenceMs, hand, onSilent);
  });
  server.maxConnections = limits.maxConnections;
  server.listen(options.port, options.host);
  await once(server, "listening");
  const { address, port } = server.address() as AddressInfo;

  let closed: Promise<unknown> | undefined;
  let idle: NodeJS.Timeout | undefined;
  const stopListening = () => {
    closed ??= once(server, "close");
    server.close();
  };
  return {
    host: address,
    port,
    async drain() {
      stopListening();
      http1.close();
      for (const session of sessions) session.close();
      idle ??= setInterval(() => http1.closeIdleConnections(), IDLE_MS).unref();
      await closed;
    },
    async end() {
      stopListening();
      clearInterval(idle);
      http1.close();
      for (const session of sessions) session.destroy();
      for (const socket of sockets) socket.destroy();
      await closed;
    },
  };
}

function createServer(
  options: ListenerOptions,
  accept: (socket: Socket) => void,
  ready: (socket: Socket) => void,
): Server {
  const { tls, limits } = options;
  if (tls === undefined) {
    return createTcp((socket) => {
      accept(socket);
      ready(socket);
    });
  }
  const server = createTls({
    cert: tls.cert,
    key: tls.key,
    ALPNProtocols: ["h2", "http/1.1"],
    minVersion: "TLSv1.2",
    handshakeTimeout: limits.silenceMs,
    ...(tls.clientCa !== undefined && { ca: tls.clientCa, requestCert: true, rejectUnauthorized: true }),
  });
  // A connection counts before its handshake, so that an unfinished handshake does not keep the server from ending.
  server.on("connection", accept);
  server.on("secureConnection", (socket) => {
    socket.on("error", () => socket.destroy());
    ready(socket);
  });
  server.on("tlsClientError", (_, socket) => socket.destroy());
  return server;
}

/** Reads the first bytes of a connection, and puts them back. */
function sniff(
  socket: Socket,
  silenceMs: number,
  hand: (socket: Socket, isHttp2: boolean) => void,
  onSilent: () => void,
): void {
  const timer = setTimeout(() => {
    onSilent();
    socket.destroy();
  }, silenceMs).unref();
  socket.once("close", () => clearTimeout(timer));
  let bytes: Buffer = Buffer.alloc(0);
  const look = () => {
    const more = socket.read() as Buffer | null;
    if (more === null) return;
    bytes = Buffer.concat([bytes, more]);
    const isPreface = PREFACE.subarray(0, bytes.length).equals(bytes.subarray(0, PREFACE.length));
    // Too few bytes to decide.
    if (isPreface && bytes.length < PREFACE.length) return;
    clearTimeout(timer);
    socket.off("readable", look);
    socket.unshift(bytes);
    hand(socket, isPreface);
  };
  socket.on("readable", look);
}

/** Cuts off a connection that did not answer the last ping. */
function watchSilence(session: ServerHttp2Session, silenceMs: number, onSilent: () => void): void {
  let awaited = false;
  const timer = setInterval(() => {
    if (session.destroyed) return;
    if (awaited) {
      onSilent();
      session.destroy();
      return;
    }
    awaited = true;
    session.ping(() => {
      awaited = false;
    });
  }, silenceMs / 2).unref();
  session.once("close", () => clearInterval(timer));
}
