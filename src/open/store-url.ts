/**
 * What the URL of a store says, and what is wrong with it. A message never has more of a URL than the scheme, a host and a number in
 * place of a port: the rest may be a password.
 */
import { type HoldfastError, invalid } from "../store/index.ts";

/** The URL with its scheme in small letters, as schemes mean the same in any, and the scheme with its colon. */
export function withScheme(text: string): { readonly url: string; readonly scheme: string } {
  const given = /^[a-z][a-z0-9+.-]*:/i.exec(text)?.[0] ?? "";
  const scheme = given.toLowerCase();
  return { scheme, url: scheme + text.slice(given.length) };
}

export interface Host {
  readonly host: string;
  readonly port: number | undefined;
}

/** Before the first "/", "?" or "#": who logs in, the hosts, and what follows. */
const PARTS = /^[a-z+]+:\/\/(?:([^/?#]*)@)?([^/?#]*)(.*)$/s;

/** The hosts of a URL, of which there may be several with commas between them. None is needed where the client has a default. */
export function hostsOf(url: string): readonly Host[] {
  const [, , authority = "", rest = ""] = PARTS.exec(url) ?? [];
  return authority.split(",").map((text) => {
    const [, host = "", port] = /^(\[[^\]]*\]|[^:]*)(?::(.*))?$/.exec(text) ?? [];
    if (port !== undefined && !isPort(port)) throw wrongPort(host, port, rest);
    return { host: host.replace(/^\[|\]$/g, ""), port: port === undefined ? undefined : Number(port) };
  });
}

/** The same, where a client needs to be told a host. */
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
  // What is no number may be the password of a URL whose host was forgotten.
  const given = /^\d+$/.test(port) ? `, not ${port}` : "";
  return invalid(`url must have a port from 1 to 65535 after the host "${host}"${given}.`);
}

export function credentialsOf(url: string): { readonly username: string; readonly password: string } {
  const [, userinfo = ""] = PARTS.exec(url) ?? [];
  const [, username = "", password = ""] = /^([^:]*)(?::(.*))?$/s.exec(userinfo) ?? [];
  return { username: decoded(username), password: decoded(password) };
}

/** What follows the hosts, up to a "?" or "#". */
export function pathOf(url: string): string {
  const [, , , rest = ""] = PARTS.exec(url) ?? [];
  return /^[^?#]*/.exec(rest)?.[0] ?? "";
}

/** Not shown when it is wrong: it may be a password. */
export function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    throw invalid('url has a "%" without an escape code. Write %25 for a percent sign.');
  }
}

/**
 * Makes a client, which reads the URL. One that cannot is no cause to be kept: it may have the whole URL, as the `input` of
 * Node.js. What it says is told where none of the URL's secrets is in it.
 */
export function readBy<T>(client: string, url: string, make: () => T): T {
  try {
    return make();
  } catch (error) {
    const words = error instanceof Error ? error.message : "";
    const said = words === "" || secretsIn(url).some((secret) => words.includes(secret)) ? "" : `: ${words}`;
    throw invalid(`url is not valid for the package ${client}${said.replace(/\.$/, "")}.`);
  }
}

function secretsIn(url: string): readonly string[] {
  // Up to the last "@", wherever that is: a password may have come with characters that should have been escaped.
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
