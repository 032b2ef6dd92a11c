export { type OpenStoreOptions, openStore, storeSchemes } from "./open-store.ts";
