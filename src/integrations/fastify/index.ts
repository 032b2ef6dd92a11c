export { type HoldfastPluginOptions, holdfastPlugin } from "./holdfast-plugin.ts";
export { type LockedHandler, type LockedHandlerOptions, locked } from "./locked-handler.ts";
