export {
  HoldfastModule,
  type HoldfastModuleAsyncOptions,
  type HoldfastModuleOptions,
  InjectLocks,
  LOCKS,
} from "./holdfast-module.ts";
export { currentLease, Locked, type LockedDecorator, type LockedOptions } from "./locked.ts";
