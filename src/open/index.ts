export { openStore, storeSchemes } from "./open-store.ts";
