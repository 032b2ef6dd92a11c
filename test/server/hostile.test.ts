import { expect, test } from "vitest";
import { attack } from "./hostile.ts";

test("hostile messages, half-open connections and slow readers crash nothing, fill nothing, and disturb nobody", async () => {
  const report = await attack(2_000, 1, () => {});
  console.log(JSON.stringify(report.memoryMb), JSON.stringify(report.honest), JSON.stringify(report.answers));
  expect(report.honest.failures).toBe(0);
  expect(report.honest.cycles).toBeGreaterThan(10);
  expect(Object.keys(report.attacks).length).toBeGreaterThan(15);
  expect(report.memoryMb.most).toBeLessThan(200);
  expect(report.memoryMb.after).toBeLessThan(report.memoryMb.before + 50);
  // Malformed messages are answered as such, and not with silence or as a fault of the server's.
  expect(report.answers["grpc 3"]).toBeGreaterThan(0);
  expect(report.answers["http 400"]).toBeGreaterThan(0);
  expect(report.answers["http 500"]).toBeUndefined();
}, 120_000);
