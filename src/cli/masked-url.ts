/** A URL without the password before the host, and without parameters whose names suggest a secret. */
export function maskedUrl(url: string): string {
  return url
    .replace(/^([a-z+]+:\/\/[^:/?#@]*:)[^/?#]*(?=@)/i, "$1***")
    .replace(/([?&][^=&]*(?:pass|secret|token|key)[^=&]*=)[^&]*/gi, "$1***");
}
