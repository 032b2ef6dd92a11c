/** URLs as they may be shown: without passwords. */

/** The password before the host, and parameters that are one by their name. */
export function maskedUrl(url: string): string {
  return url
    .replace(/^([a-z+]+:\/\/[^:/?#@]*:)[^/?#]*(?=@)/i, "$1***")
    .replace(/([?&][^=&]*(?:pass|secret|token|key)[^=&]*=)[^&]*/gi, "$1***");
}
