/** Where a request comes from, for the audit log and for the names of callers. */
import type { TLSSocket } from "node:tls";
import { isHttp2 } from "./exchange.ts";
import type { AnyRequest } from "./listener.ts";

export interface Source {
  /** The address of the peer. Behind a proxy it is the proxy's. */
  readonly address: string;
  readonly port: number | undefined;
  /** The subject of the client's certificate, if the server demands certificates. */
  readonly certificate: string | undefined;
}

/** Sources by their connections. */
const known = new WeakMap<object, Source>();

export function sourceOf(request: AnyRequest): Source {
  const connection = isHttp2(request) ? request.stream.session : request.socket;
  const source = connection && known.get(connection);
  if (source !== undefined) return source;
  const { remoteAddress, remotePort, authorized, getPeerX509Certificate } = request.socket as TLSSocket;
  const isCertified = authorized === true && getPeerX509Certificate !== undefined;
  const made = {
    address: remoteAddress?.replace(/^::ffff:(?=[\d.]+$)/, "") ?? "unknown",
    port: remotePort,
    certificate: isCertified
      ? (request.socket as TLSSocket).getPeerX509Certificate()?.subject.replaceAll("\n", ", ")
      : undefined,
  };
  if (connection) known.set(connection, made);
  return made;
}

/** An address as it stands before a port. */
export function hostOf({ address }: Source): string {
  return address.includes(":") ? `[${address}]` : address;
}
