/** JSON that says something else than its author thinks is refused, and errors of HTTP say what to do. */
import type { LockServer } from "holdfast/server";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { startLockServer } from "./lock-server.ts";
import { enveloped, http1, jsonCall, jsonStreamCall, say, say2 } from "./raw-http.ts";

let server: LockServer;
beforeAll(async () => {
  server = await startLockServer();
});
afterAll(() => server.stop({ graceMs: 0 }));

/** Two keys of the same name are two fields to this reader as well, so a text may say what an object cannot. */
const wrong: readonly (readonly [method: string, body: string, says: string])[] = [
  [
    "AcquireDetached",
    '{"key":"k","mode":"SHARED"}',
    'mode must be one of MODE_EXCLUSIVE, MODE_SHARED, MODE_PERMITS, not "SHARED". Did you mean MODE_SHARED?',
  ],
  ["AcquireDetached", '{"key":"k","mode":"MODE_SHARD"}', "Did you mean MODE_SHARED?"],
  [
    "AcquireDetached",
    '{"key":"k","mode":9}',
    "mode must be one of MODE_EXCLUSIVE, MODE_SHARED, MODE_PERMITS, not 9.",
  ],
  ["AcquireDetached", '{"key":"k","ttl":5000}', "ttl is not a field of AcquireRequest. Did you mean ttlMs?"],
  ["AcquireDetached", '{"key":"k","max_wait":0}', "Did you mean maxWaitMs?"],
  ["AcquireDetached", '{"key":"k","TtlMs":5000}', "Did you mean ttlMs?"],
  ["AcquireDetached", '{"key":"k","durability":"QUORUM"}', "Did you mean DURABILITY_QUORUM?"],
  ["AcquireDetached", '{"key":"k","nonsense":1}', "Its fields are key, mode, permits"],
  ["Acquire", '{"key":"k","mode":"SHARED"}', "Did you mean MODE_SHARED?"],
  ["Acquire", '{"key":"k","releaseOnDisconect":true}', "Did you mean releaseOnDisconnect?"],
  [
    "AcquireMany",
    '{"keys":[{"key":"a"},{"key":"b","mode":"SHARED"}],"terms":{}}',
    "keys[1].mode must be one of",
  ],
  ["AcquireMany", '{"keys":[{"key":"a"}],"terms":{"ttl":1}}', "terms.ttl is not a field of AcquireRequest."],
  ["Release", '{"key":"k","requestId":"i","token":"t"}', "Its fields are key, id, token."],
  [
    "Extend",
    '{"key":"k","id":"i","token":"t","ttl_millis":5}',
    "ttl_millis is not a field of ExtendRequest.",
  ],
  ["Status", '{"keys":"k"}', "Did you mean key?"],
  ["List", '{"prefx":"k"}', "Did you mean prefix?"],
  ["Watch", '{"what":{"key":"k"}}', "Its fields are key, prefix."],
  ["ForceRelease", '{"key":"k","id":"i","token":"t"}', "token is not a field of ForceReleaseRequest."],
];

const streams = ["Acquire", "AcquireMany", "Watch"];

describe("JSON with a field or a name that there is not", () => {
  test.each(wrong)("%s of %s is refused as a call of Connect", async (method, body, says) => {
    const call = streams.includes(method) ? jsonStreamCall(method, body) : jsonCall(method, body);
    const answer = await say(server.port, call);
    expect(answer).toContain('"code":"invalid_argument"');
    expect(JSON.stringify(answer)).toContain(JSON.stringify(JSON.stringify(says).slice(1, -1)).slice(1, -1));
  });

  test.each(["application/grpc+json", "application/grpc-web+json"])("is refused as %s", async (type) => {
    const headers = { ":path": "/holdfast.v1.Locks/AcquireDetached", "content-type": type, te: "trailers" };
    const { headers: told, body } = await say2(server.url, headers, enveloped('{"key":"k","ttl":5000}'));
    const status = String(told["grpc-status"] ?? /grpc-status: (\d+)/.exec(body)?.[1]);
    expect(status).toBe("3");
    expect(decodeURIComponent(`${told["grpc-message"] ?? body}`)).toContain("Did you mean ttlMs?");
  });

  test("is refused in the query of a GET", async () => {
    const query = new URLSearchParams({ encoding: "json", message: '{"kee":"k"}' });
    const request = http1("GET", `/holdfast.v1.Locks/Status?${query}`, { host: "localhost" });
    expect(await say(server.port, request)).toContain("Did you mean key?");
  });
});

test.each([
  ["the names of the .proto file", { key: "names", max_wait_ms: 0, request_id: "r", mode: "MODE_SHARED" }],
  ["the numbers of enums", { key: "numbers", mode: 2 }],
  ["null", { key: "null", mode: null, info: null }],
])("JSON with %s is read", async (_, body) => {
  expect(await say(server.port, jsonCall("AcquireDetached", body))).toContain('"acquired":true');
});

describe("an error of HTTP says what to do", () => {
  const path = "/holdfast.v1.Locks/Status";

  test.each([
    [
      "415",
      http1("POST", path, { host: "localhost", "content-type": "text/plain" }, "{}"),
      "application/json",
    ],
    ["415", http1("POST", path, { host: "localhost" }, "{}"), "content-type"],
    [
      "415",
      http1(
        "POST",
        "/holdfast.v1.Locks/Watch",
        { host: "localhost", "content-type": "application/json" },
        "{}",
      ),
      "application/connect+json",
    ],
    ["405", http1("PUT", path, { host: "localhost", "content-type": "application/json" }, "{}"), "POST, GET"],
    ["405", http1("GET", "/holdfast.v1.Locks/Release", { host: "localhost" }), "POST"],
    [
      "404",
      http1("POST", "/holdfast.v1.Locks/status", { host: "localhost" }, "{}"),
      "Did you mean /holdfast.v1.Locks/Status?",
    ],
    ["404", http1("GET", "/", { host: "localhost" }), "/holdfast.v1.Locks/Status"],
    ["404", http1("GET", "/health", { host: "localhost" }), "Did you mean /healthz?"],
  ])("%s", async (status, request, says) => {
    const answer = await say(server.port, request);
    expect(answer).toContain(`HTTP/1.1 ${status}`);
    expect(answer).toContain('"message":');
    expect(answer).toContain(says);
  });

  test("also to a client of gRPC", async () => {
    const headers = {
      ":path": "/holdfast.v1.Locks/Steal",
      "content-type": "application/grpc",
      te: "trailers",
    };
    const { headers: told } = await say2(server.url, headers, enveloped(""));
    expect(told["grpc-status"]).toBe("12");
    expect(decodeURIComponent(`${told["grpc-message"]}`)).toContain("does not exist");
  });
});

test.each([
  ["grpc-timeout", "99999999H", "application/grpc+json"],
  ["connect-timeout-ms", "9999999999", "application/json"],
])("a %s that no timer can hold is no bound", async (name, value, type) => {
  const warnings: Error[] = [];
  const onWarning = (warning: Error) => warnings.push(warning);
  process.on("warning", onWarning);
  const headers = {
    ":path": "/holdfast.v1.Locks/Status",
    "content-type": type,
    te: "trailers",
    [name]: value,
  };
  const body = '{"key":"k"}';
  const answer = await say2(server.url, headers, type === "application/json" ? body : enveloped(body));
  expect(answer.status).toBe(200);
  expect(answer.headers["grpc-status"] ?? "0").toBe("0");
  await new Promise(setImmediate);
  process.off("warning", onWarning);
  expect(warnings).toEqual([]);
});
