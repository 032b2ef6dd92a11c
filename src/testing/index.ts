export { type DriverHarness, type DriverWorld, driverContract } from "./driver-contract.ts";
export {
  type Fault,
  type FaultPlan,
  type FaultyStoreOptions,
  faultyStore,
  type StoreCall,
} from "./faulty-store.ts";
export { ManualClock, settled } from "./manual-clock.ts";
export {
  type OpenOptions,
  type StoreHarness,
  type StoreWorld,
  storeContract,
  type TestRunner,
} from "./store-contract.ts";
