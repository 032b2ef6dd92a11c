/**
 * Refuses requests of web pages. A page can make its own name resolve to this machine (DNS rebinding), and read the answers of a
 * server without tokens. Its browser sends that name as `Host`, and the origin of a page from elsewhere as `Origin`.
 */
import { X509Certificate } from "node:crypto";
import { isIP, isIPv6 } from "node:net";
import { invalid } from "../store/index.ts";
import { show } from "./http-errors.ts";
import type { AnyRequest } from "./listener.ts";

export interface HostCheckOptions {
  /** Names of the server, besides those of loopback. Undefined accepts any name. */
  readonly hosts: readonly string[] | undefined;
  /** The certificate chain of the server, in PEM. The names in it are accepted. */
  readonly cert: string | Buffer | undefined;
}

export interface HostRefusal {
  readonly reason: "foreign-host" | "foreign-origin";
  readonly message: string;
}

export type HostCheck = (request: AnyRequest) => HostRefusal | undefined;

export function createHostCheck({ hosts, cert }: HostCheckOptions): HostCheck {
  const names = new Set(hosts?.map(checkName));
  const certificate = cert === undefined ? undefined : new X509Certificate(cert);
  const isOwn = (name: string) =>
    // A name can resolve to any machine. An address reaches this server only if the server has it.
    isIP(name) !== 0 || isLoopback(name) || names.has(name) || certificate?.checkHost(name) !== undefined;

  return ({ headers }) => {
    const authority = String(headers[":authority"] ?? headers.host ?? "");
    const name = hostnameOf(authority);
    if (hosts !== undefined && (name === undefined || !isOwn(name))) {
      return {
        reason: "foreign-host",
        message: `This server does not answer requests to the host ${show(authority)}. Add the name to its hosts (--hosts), or configure tokens.`,
      };
    }
    const { origin } = headers;
    if (origin === undefined || isSame(origin, authority)) return undefined;
    return {
      reason: "foreign-origin",
      message: `This server does not answer web pages of another origin, such as ${show(origin)}. Call it from a program, or from a page of its own host.`,
    };
  };
}

/** The name or address in `Host` or `:authority`, in lower case, without brackets and without a final dot. */
export function hostnameOf(host: string | undefined): string | undefined {
  const [, address, name, port = "0"] =
    /^(?:\[([0-9a-f:.]+)\]|([a-z0-9._~-]+))(?::(\d{1,5}))?$/i.exec(host ?? "") ?? [];
  if (Number(port) > 65_535) return undefined;
  if (address !== undefined && !isIPv6(address)) return undefined;
  return (address ?? name)?.toLowerCase().replace(/\.$/, "");
}

export function isLoopback(host: string): boolean {
  return /^(.+\.)?localhost$/.test(host) || host === "::1" || /^127(\.\d{1,3}){3}$/.test(host);
}

function isSame(origin: string, authority: string): boolean {
  try {
    const page = new URL(origin);
    return page.host === new URL(`${page.protocol}//${authority}`).host;
  } catch {
    return false;
  }
}

function checkName(name: string): string {
  const isName = typeof name === "string" && /^[\w.-]+$/.test(name);
  if (isName) return name.toLowerCase().replace(/\.$/, "");
  throw invalid(
    `hosts must be names such as "locks.internal", without a scheme or a port, not ${show(name)}.`,
  );
}
