export { ManualClock, settled } from "./manual-clock.ts";
