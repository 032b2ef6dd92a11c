export { onAbort } from "./abort-listeners.ts";
export { type Clock, systemClock, type Timer } from "./clock.ts";
export { type Deadline, earliest, hasCome, noLaterThan, noSoonerThan } from "./deadline.ts";
export { type Deferred, deferred } from "./deferred.ts";
export { joinSignals } from "./joined-signal.ts";
export { makeFolder } from "./make-folder.ts";
export { pause } from "./pause.ts";
export { takeLock } from "./process-lock.ts";
export { withTimeout } from "./with-timeout.ts";
