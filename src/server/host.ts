/** What a request says that the server is called: `Host` over HTTP/1.1, `:authority` over HTTP/2. */
import { isIPv6 } from "node:net";

/** The name or address of a Host in lower case, without brackets and a dot at its end. Undefined if it is neither. */
export function hostnameOf(host: string | undefined): string | undefined {
  const [, address, name, port = "0"] =
    /^(?:\[([0-9a-f:.]+)\]|([a-z0-9._~-]+))(?::(\d{1,5}))?$/i.exec(host ?? "") ?? [];
  if (Number(port) > 65_535) return undefined;
  if (address !== undefined && !isIPv6(address)) return undefined;
  return (address ?? name)?.toLowerCase().replace(/\.$/, "");
}
