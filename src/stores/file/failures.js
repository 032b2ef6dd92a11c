/** Failures in the form in which they can cross to another thread. */

/**
 * @param {unknown} error
 * @returns {import("./protocol.ts").Failure}
 */
export function failureOf(error) {
  const { code = "UNKNOWN", message } = /** @type {{ code?: string | number, message?: string }} */ (
    Object(error)
  );
  return { code, message: message ?? String(error) };
}

/**
 * An error with a word of our own for what is wrong.
 *
 * @param {string} code
 * @param {string} message
 */
export function codedError(code, message) {
  return Object.assign(new Error(message), { code });
}

const noRoom = new Set(["ENOSPC", "EDQUOT", "EFBIG"]);

/**
 * Whether a file could not grow.
 *
 * @param {import("./protocol.ts").Failure} failure
 */
export function isLackOfRoom({ code }) {
  return noRoom.has(String(code));
}
