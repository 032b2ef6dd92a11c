export { DURATION_BOUNDS_S, Histogram } from "./histogram.ts";
export type { Labels } from "./labels.ts";
export { type Cell, Numbers } from "./numbers.ts";
export { Presence } from "./presence.ts";
