/**
 * Keeps web pages away from a server that asks for no token.
 *
 * A page can have its own name lead to this machine (DNS rebinding). The browser then takes the server for the page's own, and lets the
 * page read every answer; but it sends the page's name as the host. A page of another origin is sent along as `Origin`.
 */
import { X509Certificate } from "node:crypto";
import { isIP } from "node:net";
import { invalid } from "../store/index.ts";
import { hostnameOf } from "./host.ts";
import { show } from "./http-errors.ts";
import type { AnyRequest } from "./listener.ts";

export interface HostCheckOptions {
  /** The names to answer to, beside those of loopback; undefined: to any name. */
  readonly hosts: readonly string[] | undefined;
  /** The certificate chain of the server, in PEM. It answers to the names in it. */
  readonly cert: string | Buffer | undefined;
}

/** Why a request is refused. */
export interface HostRefusal {
  readonly reason: "foreign-host" | "foreign-origin";
  readonly message: string;
}

export type HostCheck = (request: AnyRequest) => HostRefusal | undefined;

export function createHostCheck({ hosts, cert }: HostCheckOptions): HostCheck {
  const names = new Set(hosts?.map(checkName));
  const certificate = cert === undefined ? undefined : new X509Certificate(cert);
  const isOwn = (name: string) =>
    // A name leads anywhere, but an address leads to this server only if the server has it.
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
