/** Opens a connection of HTTP/2 with the stream of a session. */
import { type ClientHttp2Session, type ClientHttp2Stream, connect } from "node:http2";
import { SESSION_PATH } from "../../protocol/index.ts";
import type { RemoteTls } from "./options.ts";

export interface ConnectionOptions {
  readonly url: string;
  readonly token: string | undefined;
  readonly tls: RemoteTls | undefined;
  readonly connectTimeoutMs: number;
  readonly silenceMs: number;
}

/** The bytes that the server may send ahead of reading. */
const WINDOW_BYTES = 4_194_304;

export function openSessionStream({ url, tls, token }: ConnectionOptions): {
  readonly connection: ClientHttp2Session;
  readonly stream: ClientHttp2Stream;
} {
  const connection = connect(url, {
    settings: { initialWindowSize: WINDOW_BYTES, enablePush: false },
    ...tls,
  });
  connection.on("connect", () => connection.setLocalWindowSize(WINDOW_BYTES));
  const stream = connection.request({
    ":method": "POST",
    ":path": SESSION_PATH,
    "content-type": "application/grpc+proto",
    te: "trailers",
    ...(token !== undefined && { authorization: `Bearer ${token}` }),
  });
  return { connection, stream };
}
