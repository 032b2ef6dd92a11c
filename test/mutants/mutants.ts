/** Bugs to plant, each the kind that a lock could be wrong by for years. The tests are good if they find them all. */
export interface Mutant {
  readonly name: string;
  readonly file: string;
  /** What stands in the file, exactly once. */
  readonly find: string;
  readonly replace: string;
}

const record = "src/core/record.ts";
const claim = "src/core/live-claim.ts";
const heartbeat = "src/core/heartbeat.ts";
const agenda = "src/core/agenda.ts";
const report = "src/core/report.ts";
const index = "src/core/id-index.ts";
const sole = "src/core/sole-claim.ts";
const memory = "src/stores/memory/memory-store.ts";
const standby = "src/thread/standby.ts";

export const mutants: readonly Mutant[] = [
  {
    name: "leases that are held for long are looked at when no new claim is left",
    file: agenda,
    find: "near === undefined || (far !== undefined && far.wakeMs < near.wakeMs) ? far : near",
    replace: "near ?? far",
  },
  {
    name: "an item that has stayed long is looked for among the latest alone",
    file: index,
    find: " ?? this.#stayed?.find(id, hash, isRight)",
    replace: "",
  },
  {
    name: "a bucket forgets all of its items when one goes",
    file: index,
    find: "      marks |= marksOf(left.idHash);\n",
    replace: "",
  },
  {
    name: "a key that is held by one forgets the fence of a later grant that is over",
    file: sole,
    find: "claim?.fence === record.fence ? claim : undefined",
    replace: "claim",
  },
  {
    name: "a key begins with the weight of the one before",
    file: sole,
    find: "  record.heldWeight = 0;\n",
    replace: "",
  },
  {
    name: "a lease is believed to the end of its last millisecond",
    file: claim,
    find: "return Math.floor(sentMs + expiresInMs",
    replace: "return Math.ceil(sentMs + expiresInMs",
  },
  {
    name: "a claim lives one tick too long",
    file: record,
    find: "next.expiresAtMs <= expiredMs",
    replace: "next.expiresAtMs < expiredMs",
  },
  {
    name: "the head of the queue is granted without a look at the limit",
    file: record,
    find: "head !== undefined && fits(record, head)",
    replace: "head !== undefined",
  },
  {
    name: "the limits of those who hold do not count",
    file: record,
    find: "tightest === undefined ? claim.limit : Math.min(claim.limit, tightest.limit)",
    replace: "claim.limit",
  },
  {
    name: "renew and release do not compare the token",
    file: record,
    find: "return ref.token === undefined || ref.token === claim.token;",
    replace: "return true;",
  },
  {
    name: "the newest waiter goes first",
    file: record,
    find: "b.priority - a.priority || a.arrival - b.arrival",
    replace: "b.priority - a.priority || b.arrival - a.arrival",
  },
  {
    name: "whoever fits barges in past the queue",
    file: record,
    find: "  addWaiting(record, claim);\n  grantHead(record, turn);",
    replace:
      "  if (fits(record, claim)) {\n    stampGrant(record, claim, turn);\n    addHeld(record, claim);\n  } else {\n    addWaiting(record, claim);\n  }",
  },
  {
    name: "a heartbeat can shorten a lease",
    file: record,
    find: "if (expiresAtMs > claim.expiresAtMs) setEnd(",
    replace: "setEnd(",
  },
  {
    name: "a grant prolongs the claim of a waiter that may be dead",
    file: record,
    find: "    stampGrant(record, head, turn);\n    hold(record, head);",
    replace:
      "    stampGrant(record, head, turn);\n    head.expiresAtMs = turn.nowMs + head.ttlMs;\n    hold(record, head);",
  },
  {
    name: "a try that fails stays in the queue",
    file: record,
    find: 'if (!request.wait) return withdraw(record, claim, "contended");',
    replace: "if (!request.wait) return refusals.contended;",
  },
  {
    name: "a fence is the stamp, also where the clock stood still or went back",
    file: record,
    find: "record.fence = next > turn.stamp ? next : turn.stamp;",
    replace: "record.fence = turn.stamp > 0n ? turn.stamp : next;",
  },
  {
    name: "a lease that was taken over is free as soon as the taker lets go",
    file: record,
    find: "ref.token !== undefined && claim.promisedUntilMs > turn.expiredMs",
    replace: "ref.token === NOBODY",
  },
  {
    name: "fences go back when an idle record is dropped",
    file: memory,
    find: "if (record.fence > turn.stamp) this.#lastStamp = Math.max(this.#lastStamp, Number(record.fence));",
    replace: "",
  },
  {
    name: "grants are not pushed",
    file: memory,
    find: "    listener.refs.push(ref);",
    replace: "    listener.refs.splice(0);",
  },
  {
    name: "a pushed grant is not acted upon",
    file: heartbeat,
    find: "      else if (!claim.pushed(ref.fence, nowMs)) unproven.push(claim);\n",
    replace: "",
  },
  {
    name: "a push that overtakes its answer is forgotten",
    file: heartbeat,
    find: "    this.#earlyGrants.add(name);",
    replace: "",
  },
  {
    name: "nobody asks when the holder should have expired",
    file: claim,
    find: "noSoonerThan(Math.min(heartbeatMs, retryMs))",
    replace: "noSoonerThan(heartbeatMs)",
  },
  {
    name: "the deadline is counted from the answer",
    file: claim,
    find: "const provenUntilMs = this.#provenBy(sentMs, answer.expiresInMs);",
    replace: "const provenUntilMs = this.#provenBy(nowMs, answer.expiresInMs);",
  },
  {
    name: "clocks are trusted to run at the same rate",
    file: claim,
    find: "expiresInMs * (1 - this.#heartbeat.settings.clockDrift) - STORE_TICK_MS",
    replace: "expiresInMs - STORE_TICK_MS",
  },
  {
    name: "held is what was last heard, not what the clock says",
    file: claim,
    find: 'return this.#expireIfOverdue(this.#now()) === "held";',
    replace: 'return this.#phase === "held";',
  },
  {
    name: "an answer that comes too late is believed",
    file: claim,
    find: "if (provenUntilMs <= nowMs) {",
    replace: "if (nowMs < 0) {",
  },
  {
    name: "an answer after the deadline revives the lease",
    file: heartbeat,
    find: "(answers) => {\n        const nowMs = this.wake();",
    replace: "(answers) => {\n        const nowMs = this.clock.monotonicMs();",
  },
  {
    name: "the fence comes from the client's clock",
    file: claim,
    find: "this.fence = fence;",
    replace: "this.fence = BigInt(Math.floor(this.#heartbeat.clock.wallMs() * 1_000));",
  },
  {
    name: "a cancelled waiter stays in the queue",
    file: claim,
    find: "this.#depart(this.#now(), GOODBYE_MS).then(refuse, refuse);",
    replace: "this.#end();\n    refuse();",
  },
  {
    name: "what is granted after giving up is kept",
    file: claim,
    find: 'if (answer.state !== "refused" && !this.#detached) this.#heartbeat.discard(request);',
    replace: "",
  },
  {
    name: "one failed heartbeat loses the lease",
    file: claim,
    find: "this.#wantsHeartbeats()) this.#retry(error);",
    replace: 'this.#wantsHeartbeats()) this.#lose("gone");',
  },
  {
    name: "a heartbeat that is never answered is never repeated",
    file: claim,
    find: "this.#attemptMs = noSoonerThan(nowMs + this.#attemptTimeoutMs());",
    replace: "this.#attemptMs = undefined;",
  },
  {
    name: "a waiter whom the store has forgotten waits for ever",
    file: claim,
    find: "      this.#leavePhase();\n      this.#askAnew();",
    replace: "      this.#answered();",
  },
  {
    name: "a retry asks with another id",
    file: claim,
    find: "    const request = this.request;\n    const heartbeat = this.#heartbeat;",
    replace:
      "    if (this.#attempts > 1) this.request = { ...this.request, ...newClaimIds() };\n    const request = this.request;\n    const heartbeat = this.#heartbeat;",
  },
  {
    name: "a lease being won again comes back after its release",
    file: claim,
    find: 'request.token === this.request.token && this.#phase !== "ended" && this.#phase !== "leaving"',
    replace: "request.token === this.request.token",
  },
  {
    name: "maxHoldMs is not kept",
    file: claim,
    find: "this.#holdUntilMs ??= noLaterThan(sentMs + this.#settings.maxHoldMs);",
    replace: "",
  },
  {
    name: "a pushed grant is believed whatever its fence",
    file: claim,
    find: "fence === undefined || fence <= wait.fence",
    replace: "fence === undefined",
  },
  {
    name: "a pushed grant is believed by a claim that may not be the one",
    file: claim,
    find: "    if (this.#namedByCaller) return false;\n",
    replace: "",
  },
  {
    name: "a pushed grant is good for a whole ttl",
    file: claim,
    find: "this.#hold(nowMs, nowMs, fence, this.#provenUntilMs);",
    replace: "this.#hold(nowMs, nowMs, fence, nowMs + this.request.ttlMs);",
  },
  {
    name: "an extension that is refused puts off the heartbeat of its lease",
    file: "src/core/extensions.ts",
    find: "if (refused.length > 0) this.#isOwnNext = leastMs > 0;",
    replace: "",
  },
  {
    name: "an extension that is refused puts off the next one, though nobody asked for it any more",
    file: "src/core/extensions.ts",
    find: "if (refused.length > 0) this.#isOwnNext",
    replace: "this.#isOwnNext",
  },
  {
    name: "an extension is not asked for again where another heartbeat was answered",
    file: claim,
    find: "noSoonerThan(Math.min(heartbeatMs, extendMs))",
    replace: "noSoonerThan(heartbeatMs)",
  },
  {
    name: "an extension that the store cannot serve takes every heartbeat of its lease",
    file: claim,
    find: "if (this.#attempts % 2 === 1) this.#extensions?.ownNext();",
    replace: "",
  },
  {
    name: "a refused extension is the cause of a later outage",
    file: claim,
    find: '(isRefused || this.#isExtra(ref)) && this.#phase === "held"',
    replace: "false",
  },
  {
    name: "a refusal that nobody is left for is the cause of a later outage",
    file: claim,
    find: '(isRefused || this.#isExtra(ref)) && this.#phase === "held"',
    replace: 'isRefused && this.#phase === "held"',
  },
  {
    name: "an extension that the store cannot serve is an outage each time",
    file: claim,
    find: "error.retryable && !this.#isExtra(ref)",
    replace: "error.retryable",
  },
  {
    name: "a key that hangs keeps others from hearing of theirs",
    file: heartbeat,
    find: "of heartbeatCalls(alive)",
    replace: "of batches(alive)",
  },
  {
    name: "a key that hangs keeps others from hearing of theirs after a failure",
    file: claim,
    find: "    this.#lastError = error;\n    this.silences = 0;",
    replace: "    this.#lastError = error;\n    this.silences = Number.NEGATIVE_INFINITY;",
  },
  {
    name: "heartbeats that hang pile up",
    file: "src/core/heartbeat-calls.ts",
    find: "Math.log2(silences) % 2 === 0",
    replace: "true",
  },
  {
    name: "one failure of a heartbeat is told of all its claims",
    file: "src/core/common-failure.ts",
    find: " && each.reason === first.reason",
    replace: "",
  },
  {
    name: "events: an unanswered heartbeat is told in the middle of its step",
    file: report,
    find: 'queueMicrotask(() => publish("renewal-failed", event));',
    replace: 'publish("renewal-failed", event);',
  },
  {
    name: "events: an outage is told in the middle of a step",
    file: report,
    find: 'queueMicrotask(() => publish("store-unavailable", event));',
    replace: 'publish("store-unavailable", event);',
  },
  {
    name: "events: a loss is told before it is one",
    file: report,
    find: 'return () => publish("lost", event);',
    replace: 'publish("lost", event);\n    return nothing;',
  },
  {
    name: "thread: a renewal proves the lease from when it was answered",
    file: standby,
    find: "const untilMs = sentMs + expiresInMs",
    replace: "const untilMs = clock.monotonicMs() + expiresInMs",
  },
  {
    name: "thread: an answer counts after the deadline, too",
    file: standby,
    find: "    if (clock.monotonicMs() >= provenUntilMs(charge)) return;\n",
    replace: "",
  },
  {
    name: "thread: held is held, whatever the fence",
    file: standby,
    find: 'answer.state === "held" && answer.fence === charge.fence',
    replace: 'answer.state === "held"',
  },
  {
    name: "thread: a lease is released before the application is told that it is lost",
    file: standby,
    find: "    charge.cell.loss = loss;\n",
    replace: "    this.#options.clock.setTimer(20, () => {\n      charge.cell.loss = loss;\n    });\n",
  },
  {
    name: "thread: an endless body keeps its lease for ever",
    file: standby,
    find: '    if (nowMs >= this.#blockedUntilMs(charge)) return "blocked";\n',
    replace: "",
  },
  {
    name: "thread: maxHoldMs does not bind the second heartbeat",
    file: standby,
    find: '    if (nowMs >= charge.holdUntilMs + slackMs(charge)) return "max-hold";\n',
    replace: "",
  },
  {
    name: "thread: a store that was never proven may end leases",
    file: standby,
    find: 'answer.state === "gone" && !this.#isProven',
    replace: 'answer.state === "gone" && answer === undefined',
  },
  {
    name: "thread: the second heartbeat works all the time",
    file: standby,
    find: "cell.firstProofMs - restMs + slackMs(charge)",
    replace: "cell.firstProofMs - ttlMs",
  },
  {
    name: "thread: a claim looks at what the thread knows only when its own time is up",
    file: claim,
    find: 'if (this.#phase === "held" && this.#kept !== undefined)',
    replace: 'if (this.#phase === "held" && this.#kept !== undefined && nowMs >= this.#provenUntilMs)',
  },
  {
    name: "thread: a claim never looks at what the thread has proven",
    file: claim,
    find: "    this.#provenUntilMs = Math.max(this.#provenUntilMs, Math.floor(provenUntilMs));\n    // The store may",
    replace: "    // The store may",
  },
  {
    name: "thread: a key that hangs keeps others from hearing of theirs",
    file: standby,
    find: "of heartbeatCalls(due)",
    replace: "of due.length === 0 ? [] : [due]",
  },
  {
    name: "thread: a lease that is over is not dropped",
    file: claim,
    find: "    this.#kept?.drop();\n",
    replace: "",
  },
];
