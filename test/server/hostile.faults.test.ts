import { expect, test } from "vitest";
import { attack } from "./hostile.ts";

test("hostile messages, half-open connections and slow readers neither crash nor fill the server, nor disturb its clients", async () => {
  const report = await attack(2_000, 1, () => {});
  const { before, after, mostMb, answers } = report;
  console.log(JSON.stringify({ before, after, mostMb, honest: report.honest, answers }));
  expect(report.honest.failures).toBe(0);
  expect(report.honest.cycles).toBeGreaterThan(10);
  expect(Object.keys(report.attacks).length).toBeGreaterThan(15);
  expect(mostMb).toBeLessThan(200);
  expect(after.heapMb).toBeLessThan(before.heapMb + 30);
  const { rssMb: _, heapMb: __, ...open } = after;
  expect(open).toEqual({
    handles: before.handles,
    timers: before.timers,
    keys: before.keys,
    open: before.open,
  });
  expect(report.serverErrors).toBe(0);
  // Malformed messages get an error of the client, not silence or an error of the server.
  expect(report.answers["grpc 3"]).toBeGreaterThan(0);
  expect(report.answers["http 400"]).toBeGreaterThan(0);
  expect(report.answers["http 500"]).toBeUndefined();
}, 120_000);
