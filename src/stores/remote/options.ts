import { checkInteger, checkOptionNames, type Durability, durabilities, invalid } from "../../store/index.ts";

export interface RemoteTls {
  /** The trusted certificate authorities, in PEM. Default: those of Node. */
  readonly ca?: string | Buffer;
  /** The certificate of this client, in PEM, for a server that requires one. */
  readonly cert?: string | Buffer;
  /** The private key of `cert`, in PEM. */
  readonly key?: string | Buffer;
  /** The name in the server's certificate. Default: the host of the URL. */
  readonly servername?: string;
}

export interface RemoteStoreOptions {
  /** The bearer token, for a server with tokens. */
  readonly token?: string;
  /** For `https:` URLs. */
  readonly tls?: RemoteTls;
  /**
   * The least durability of the store behind the server. A server with less is not used, and calls fail with
   * `DURABILITY_UNAVAILABLE`. `connectRemote` asks the server instead. Default "ephemeral".
   */
  readonly durability?: Durability;
  /** The time for a server to answer a new connection before the next server is tried, 100 to 60,000. Default 3,000. */
  readonly connectTimeoutMs?: number;
  /** The time for a server to answer a ping before the connection counts as broken, 500 to 60,000. Default 3,000. */
  readonly silenceMs?: number;
}

export interface RemoteSettings {
  readonly urls: readonly string[];
  readonly token: string | undefined;
  readonly tls: RemoteTls | undefined;
  readonly durability: Durability;
  readonly connectTimeoutMs: number;
  readonly silenceMs: number;
}

export function resolveRemoteOptions(
  urls: string | readonly string[],
  options: RemoteStoreOptions,
): RemoteSettings {
  checkOptionNames("remoteStore", options, {
    token: true,
    tls: true,
    durability: true,
    connectTimeoutMs: true,
    silenceMs: true,
  });
  const list = typeof urls === "string" ? [urls] : [...urls];
  if (list.length === 0) throw invalid("remoteStore needs the URL of at least one server.");
  const { token, tls, durability = "ephemeral" } = options;
  if (!durabilities.includes(durability)) {
    throw invalid(`durability must be one of ${durabilities.join(", ")}, not ${String(durability)}.`);
  }
  if (token !== undefined && !/^\S{1,4096}$/.test(token)) {
    throw invalid("token must be 1 to 4,096 printable characters without spaces.");
  }
  return {
    urls: list.map(checkUrl),
    token,
    tls,
    durability,
    connectTimeoutMs: checkInteger("connectTimeoutMs", options.connectTimeoutMs ?? 3_000, 100, 60_000),
    silenceMs: checkInteger("silenceMs", options.silenceMs ?? 3_000, 500, 60_000),
  };
}

function checkUrl(url: string): string {
  const parsed = URL.canParse(url) ? new URL(url) : undefined;
  if (parsed === undefined || !/^https?:$/.test(parsed.protocol) || parsed.pathname !== "/") {
    throw invalid(`url must look like http://host:port or https://host:port, not "${url}".`);
  }
  return parsed.origin;
}
