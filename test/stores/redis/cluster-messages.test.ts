/** The one listener on a cluster client of ioredis that all who listen share. */
import { EventEmitter } from "node:events";
import { expect, test } from "vitest";
import { messagesOf } from "../../../src/stores/redis/cluster-messages.ts";

test("redis: all who listen on a cluster client share one listener, which is gone with the last of them", () => {
  const client = new EventEmitter();
  const told: string[] = [];
  const listen = (channel: string, who: string) =>
    messagesOf(client as never).listen(channel, (message) => told.push(`${who}: ${message}`));
  const [one, other, beside] = [listen("a", "one"), listen("a", "other"), listen("b", "beside")];
  expect(client.listenerCount("message")).toBe(1);
  client.emit("message", "a", "first");
  one();
  // Ending twice ends nobody else.
  one();
  client.emit("message", "a", "second");
  client.emit("message", "b", "third");
  client.emit("message", "nobody's", "fourth");
  expect(told).toEqual(["one: first", "other: first", "other: second", "beside: third"]);
  other();
  beside();
  expect(client.listenerCount("message")).toBe(0);
  const again = listen("a", "again");
  client.emit("message", "a", "fifth");
  expect(told.at(-1)).toBe("again: fifth");
  again();
  expect(client.listenerCount("message")).toBe(0);
});
