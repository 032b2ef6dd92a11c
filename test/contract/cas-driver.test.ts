import { driverContract } from "holdfast/testing";
import * as vitest from "vitest";
import { MapDatabase, mapDriver } from "../../examples/driver/map-driver.ts";

driverContract(
  {
    name: "the map driver",
    async open() {
      const database = new MapDatabase();
      return { driver: async () => mapDriver(database), close: async () => {} };
    },
  },
  vitest,
);
