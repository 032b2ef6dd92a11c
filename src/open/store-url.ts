/** Reads URLs of stores. Messages contain only the scheme, a host and a numeric port: the rest may be a password. */
import { type HoldfastError, invalid } from "../store/index.ts";

/** The scheme with its colon, in lower case, and the URL with it. */
export function withScheme(text: string): { readonly url: string; readonly scheme: string } {
  const given = /^[a-z][a-z0-9+.-]*:/i.exec(text)?.[0] ?? "";
  const scheme = given.toLowerCase();
  return { scheme, url: scheme + text.slice(given.length) };
}

export interface Host {
  readonly host: string;
  readonly port: number | undefined;
}

/** The user, the hosts, and the rest from the first "/", "?" or "#" on. */
const PARTS = /^[a-z+]+:\/\/(?:([^/?#]*)@)?([^/?#]*)(.*)$/s;

/** The hosts of a URL, separated by commas. A host may be empty, for the default of the client. */
export function hostsOf(url: string): readonly Host[] {
  const [, , authority = "", rest = ""] = PARTS.exec(url) ?? [];
  return authority.split(",").map((text) => {
    const [, host = "", port] = /^(\[[^\]]*\]|[^:]*)(?::(.*))?$/.exec(text) ?? [];
    if (port !== undefined && !isPort(port)) throw wrongPort(host, port, rest);
    return { host: host.replace(/^\[|\]$/g, ""), port: port === undefined ? undefined : Number(port) };
  });
}

/** The hosts of a URL. Throws if one is empty. */
export function namedHostsOf(url: string): readonly Host[] {
  const hosts = hostsOf(url);
  if (hosts.every(({ host }) => host !== "")) return hosts;
  throw invalid("url must name a host, such as redis://localhost:6379 or etcd://one:2379,two:2379.");
}

function isPort(text: string): boolean {
  return /^\d{1,5}$/.test(text) && Number(text) >= 1 && Number(text) <= 65_535;
}

function wrongPort(host: string, port: string, rest: string): HoldfastError {
  if (rest.includes("@")) {
    return invalid('url has a "/", "?" or "#" in its username or password. Write %2F, %3F or %23 instead.');
  }
  // A port that is not a number may be the password of a URL without a host.
  const given = /^\d+$/.test(port) ? `, not ${port}` : "";
  return invalid(`url must have a port from 1 to 65535 after the host "${host}"${given}.`);
}

export function credentialsOf(url: string): { readonly username: string; readonly password: string } {
  const [, userinfo = ""] = PARTS.exec(url) ?? [];
  const [, username = "", password = ""] = /^([^:]*)(?::(.*))?$/s.exec(userinfo) ?? [];
  return { username: decoded(username), password: decoded(password) };
}

/** The path after the hosts, without a query. */
export function pathOf(url: string): string {
  const [, , , rest = ""] = PARTS.exec(url) ?? [];
  return /^[^?#]*/.exec(rest)?.[0] ?? "";
}

/** The error does not show the text, which may be a password. */
export function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    throw invalid('url has a "%" without an escape code. Write %25 for a percent sign.');
  }
}

/**
 * Makes a client from the URL. Its error does not become a cause, because it may contain the whole URL. Its message is passed on
 * only if it contains no secret of the URL.
 */
export function readBy<T>(client: string, url: string, make: () => T): T {
  try {
    return make();
  } catch (error) {
    const message = error instanceof Error ? error.message : "";
    const detail =
      message === "" || secretsIn(url).some((secret) => message.includes(secret)) ? "" : `: ${message}`;
    throw invalid(`url is not valid for the package ${client}${detail.replace(/\.$/, "")}.`);
  }
}

function secretsIn(url: string): readonly string[] {
  // Up to the last "@", because a password may contain characters that should have been escaped.
  const userinfo = /\/\/(.*)@/s.exec(url)?.[1] ?? "";
  const parameters = [...url.matchAll(/[?&][^=&]*(?:pass|secret|token|key)[^=&]*=([^&#]*)/gi)];
  const raw = [userinfo.slice(userinfo.indexOf(":") + 1), ...userinfo.split(/[:/?#@]/).slice(1)];
  const texts = [...raw, ...parameters.map(([, value = ""]) => value)].filter((text) => text !== "");
  return [...texts, ...texts.map(withoutEscapes)];
}

function withoutEscapes(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
