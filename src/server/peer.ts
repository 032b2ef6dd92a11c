/** The other end of a connection, for the audit log and for the owners of claims. */
import type { TLSSocket } from "node:tls";
import { isHttp2 } from "./exchange.ts";
import type { AnyRequest } from "./listener.ts";

export interface Peer {
  /** The address of the peer. Behind a proxy it is the address of the proxy. */
  readonly address: string;
  readonly port: number | undefined;
  /** The subject of the client's certificate, if the server requires certificates. */
  readonly certificate: string | undefined;
}

const peers = new WeakMap<object, Peer>();

export function peerOf(request: AnyRequest): Peer {
  const connection = isHttp2(request) ? request.stream.session : request.socket;
  const known = connection && peers.get(connection);
  if (known !== undefined) return known;
  const socket = request.socket as TLSSocket;
  const isCertified = socket.authorized === true && socket.getPeerX509Certificate !== undefined;
  const peer = {
    address: socket.remoteAddress?.replace(/^::ffff:(?=[\d.]+$)/, "") ?? "unknown",
    port: socket.remotePort,
    certificate: isCertified ? socket.getPeerX509Certificate()?.subject.replaceAll("\n", ", ") : undefined,
  };
  if (connection) peers.set(connection, peer);
  return peer;
}

/** The address as it is written before a port. */
export function hostOf({ address }: Peer): string {
  return address.includes(":") ? `[${address}]` : address;
}
