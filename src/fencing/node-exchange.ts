/** A request and its response as Node has them, and whether the client is still there. */

/** A connection. Over HTTP/2 it stands for the stream of one request. */
export interface NodeFenceSocket {
  readonly destroyed?: boolean;
  once(event: "close", listener: () => void): unknown;
}

/** A request of Node's, which that of Express is. */
export interface NodeFenceRequest {
  readonly method?: string | undefined;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly socket?: NodeFenceSocket | null | undefined;
}

/** A response of Node's, which that of Express is. */
export interface NodeFenceResponse {
  statusCode: number;
  readonly writableEnded: boolean;
  readonly destroyed?: boolean;
  setHeader(name: string, value: string): unknown;
  end(...values: never[]): unknown;
  once(event: "close", listener: () => void): unknown;
  removeListener(event: "close", listener: () => void): unknown;
}

/** The requests of each connection. They share one listener, because a client may pipeline any number of them. */
const listeners = new WeakMap<NodeFenceSocket, Set<() => void>>();

/**
 * Calls the listener once, when the response or its connection is closed, or now if either is closed already. For a pipelined
 * request whose turn to be answered has not come, Node reports the connection alone.
 *
 * @returns Stops listening.
 */
export function onClosed(
  { socket }: NodeFenceRequest,
  response: NodeFenceResponse,
  listener: () => void,
): () => void {
  if (response.destroyed === true || socket?.destroyed === true) {
    listener();
    return () => {};
  }
  const connection = socket ? listenersOf(socket) : undefined;
  const stop = () => {
    response.removeListener("close", closed);
    connection?.delete(closed);
  };
  const closed = () => {
    stop();
    listener();
  };
  response.once("close", closed);
  connection?.add(closed);
  return stop;
}

function listenersOf(socket: NodeFenceSocket): Set<() => void> {
  const known = listeners.get(socket);
  if (known !== undefined) return known;
  const added = new Set<() => void>();
  listeners.set(socket, added);
  socket.once("close", () => {
    for (const closed of [...added]) closed();
  });
  return added;
}
