/** What the system offers to all parts. It is JavaScript, because the thread of the file store loads it as it is. */
export { makeFolder } from "./make-folder.js";
export { takeLock } from "./process-lock.js";
