/** Bugs to plant, each the kind that a lock could be wrong by for years. The tests are good if they find them all. */
export interface Mutant {
  readonly name: string;
  readonly file: string;
  /** What stands in the file, exactly once. */
  readonly find: string;
  readonly replace: string;
}

const record = "src/record/record.ts";
const index = "src/record/id-index.ts";
const sole = "src/record/sole-claim.ts";
const memory = "src/stores/memory/memory-store.ts";
const flights = "src/stores/cas/flights.ts";
const operation = "src/stores/cas/operation.ts";
const keeping = "src/stores/cas/keeping.ts";
const ownClaims = "src/stores/cas/own-claims.ts";
const lease = "src/stores/etcd/lease.ts";
const swapRequest = "src/stores/etcd/swap-request.ts";
const etcdDriver = "src/stores/etcd/driver.ts";
const standby = "src/integrations/thread/standby.ts";

export const mutants: readonly Mutant[] = [
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
    name: "one failure of a heartbeat is told of all its claims",
    file: "src/store/common-failure.ts",
    find: " && each.reason === first.reason",
    replace: "",
  },
  {
    name: "cas: what changes nothing is answered from memory",
    file: flights,
    find: "        if (!passenger.isGuess && combined.change.text !== undefined) lane.lost(nowMs, tookMs, random());",
    replace:
      "        if (combined.change.text === undefined) {\n          this.#confirm(passenger, combined.change.expected, lateMs, sentMs);\n          return;\n        }",
  },
  {
    name: "cas: a clock that was set back is not noticed",
    file: flights,
    find: "earliestMs: bounds.lowMs,",
    replace: "earliestMs: 0,",
  },
  {
    name: "cas: a change may be made however late",
    file: flights,
    find: "latestMs: bounds.highMs + requestTimeoutMs",
    replace: "latestMs: bounds.highMs + 3_600_000",
  },
  {
    name: "cas: an idle record may be removed at once",
    file: operation,
    find: "lastUseMs(record, turn) + options.keepIdleMs",
    replace: "idle ? turn.expiredMs - 1 : lastUseMs(record, turn) + options.keepIdleMs",
  },
  {
    name: "cas: a record may be removed while a claim lives",
    file: operation,
    find: "  for (const claim of record.held) lastMs = Math.max(lastMs, claim.expiresAtMs);\n",
    replace: "",
  },
  {
    name: "cas: a life is counted from the earliest that the time can be",
    file: operation,
    find: "nowMs: highMs, expiredMs: lowMs,",
    replace: "nowMs: lowMs, expiredMs: lowMs,",
  },
  {
    name: "cas: claims are dropped by the latest that the time can be",
    file: operation,
    find: "nowMs: highMs, expiredMs: lowMs,",
    replace: "nowMs: highMs, expiredMs: highMs,",
  },
  {
    name: "cas: fences do not follow the time",
    file: "src/stores/cas/server-time.ts",
    find: "stamp: stamp ?? BigInt(highMs) * 1_000n",
    replace: "stamp: stamp ?? 0n",
  },
  {
    name: "cas: what may not have been written is remembered as if it were",
    file: flights,
    find: "      (error) => {\n        for (const { lane, operations } of passengers) {\n          lane.land();",
    replace:
      "      (error) => {\n        for (const { lane, operations, combined } of passengers) {\n          lane.land();\n          lane.known = { version: combined.change.expected, text: combined.text, record: combined.record };",
  },
  {
    name: "cas: a promise is not shortened when the server's time turns out to be later",
    file: flights,
    find: "shortened(answer, lateMs)",
    replace: "shortened(answer, 0)",
  },
  {
    name: "cas: a key is in two flights at once",
    file: flights,
    find: "lane.isQueued || lane.inFlight || lane.pending.length === 0",
    replace: "lane.isQueued || lane.pending.length === 0",
  },
  {
    name: "cas: who lost a swap goes behind those who came later",
    file: "src/stores/cas/lane.ts",
    find: "[...operations, ...this.pending]",
    replace: "[...this.pending, ...operations]",
  },
  {
    name: "cas: who never meets others leaves no room for newcomers, whoever waits",
    file: "src/stores/cas/lane.ts",
    find: "known.record.queue.length === 0 && nowMs - this.#metAtMs >= MET_MS",
    replace: "nowMs - this.#metAtMs >= MET_MS",
  },
  {
    name: "cas: no more room is left for newcomers than those inside would need",
    file: "src/stores/cas/lane.ts",
    find: "dueMs % RUN_MS === 0 ? Math.max(REST_MS, roundTripsMs) : roundTripsMs",
    replace: "roundTripsMs",
  },
  {
    name: "cas: a clock that contradicts what it said before is not believed",
    file: "src/stores/cas/server-time.ts",
    find: "return next.sentMs < known.sentMs;",
    replace: "return true;",
  },
  {
    name: "cas: nobody looks again where nobody pushes",
    file: "src/stores/cas/wake-ups.ts",
    find: "if ([...this.#owners.values()].every((owner) => owner.listening)) return;",
    replace: "if (this.#owners.size >= 0) return;",
  },
  {
    name: "cas: an old sample of the time is kept because it is more exact",
    file: "src/stores/cas/server-time.ts",
    find: "this.at(receivedMs) !== undefined && ",
    replace: "",
  },
  {
    name: "cas: grants are seen, and not told",
    file: "src/stores/cas/wake-ups.ts",
    find: "      if (owner !== undefined) this.#tell(owner, { key, id, fence });",
    replace: "",
  },
  {
    name: "cas: a record that a conflict brought along is forgotten before the next attempt",
    file: "src/stores/cas/lanes.ts",
    find: "!lane.isActive && !lane.wasUsed",
    replace: "!lane.wasUsed",
  },
  {
    name: "cas: a process does not end the claims that it keeps",
    file: ownClaims,
    find: "      if (endsAtMs <= nowMs) this.#options.settle(entry.key).catch(() => {});\n",
    replace: "",
  },
  {
    name: "cas: more is promised than is proven of a keeper",
    file: keeping,
    find: "provenMs < answer.expiresInMs ? { ...answer, expiresInMs: provenMs } : answer",
    replace: "answer",
  },
  {
    name: "cas: a heartbeat asks for no sign of life",
    file: keeping,
    find: 'if (asked.verb === "renew") this.#fresh = true;',
    replace: "",
  },
  {
    name: "cas: claims of another process end by this one's clock",
    file: keeping,
    find: "      return nowMs + lifeMs;\n    }",
    replace: "      return Math.min(claim.expiresAtMs, nowMs + lifeMs);\n    }",
  },
  {
    name: "cas: what a former caller was promised through another process is forgotten",
    file: keeping,
    find: "      if (claim.promisedUntilMs !== 0) claim.promisedUntilMs = nowMs + lifeMs;\n",
    replace: "",
  },
  {
    name: "cas: nobody checks that the keepers of holders live",
    file: keeping,
    find: "if (alive.size < most) alive.add(keeper);",
    replace: "if (alive.size > most) alive.add(keeper);",
  },
  {
    name: "cas: a claim that is taken along to a longer life stays on its short-lived keeper",
    file: keeping,
    find: " || this.#keepers.lifeMs(claim.keeper) < lifeMs",
    replace: "",
  },
  {
    name: "cas: a process does not note what it is about to keep",
    file: keeping,
    find: "    this.#claims.set(this.key, id, { endsAtMs, promisedUntilMs });\n",
    replace: "",
  },
  {
    name: "cas: a guess that knows nothing of a claim shortens its life",
    file: ownClaims,
    find: "known === undefined ? claim : later(known, claim)",
    replace: "claim",
  },
  {
    name: "cas: a process forgets what it keeps as soon as the server has it",
    file: ownClaims,
    find: "if (claim === undefined || !isOwn(claim.keeper)) {",
    replace: "if (claim !== undefined || !isOwn(key)) {",
  },
  {
    name: "etcd: a sign of life counts that a former leader has answered",
    file: lease,
    find: "else if (sign.term === term) this",
    replace: "else this",
  },
  {
    name: "etcd: a lease that is found again counts from then on",
    file: lease,
    find: "this.#provenMs = this.#askedMs ?? Number.NEGATIVE_INFINITY;",
    replace: "this.#provenMs = this.#connection.clock.monotonicMs();",
  },
  {
    name: "etcd: a change that was given up is made, however late",
    file: swapRequest,
    find: "const compare: EtcdCompare[] = leases.map((lease) => hasRevision(lease.key, lease.epoch));",
    replace: "const compare: EtcdCompare[] = leases.map((lease) => exists(lease.key));",
  },
  {
    name: "etcd: a change may be made for as long again as what came before it took",
    file: etcdDriver,
    find: "this.#patienceMs - (this.#clock.monotonicMs() - decidedMs)",
    replace: "this.#patienceMs",
  },
  {
    name: "etcd: a claim is hung on another lease before that is proven to live",
    file: etcdDriver,
    find: "await this.#proveMoved(moved, decidedMs)",
    replace: "await this.#proveMoved([], decidedMs)",
  },
  {
    name: "etcd: claims are dropped without a look whether their keeper has ended",
    file: swapRequest,
    find: "for (const name of keepers?.ended ?? []) compare.push(isAbsent(keys.keeper(name)));",
    replace: "",
  },
  {
    name: "etcd: a record is made with the fence of a time before others were removed",
    file: swapRequest,
    find: "      compare.push(isNotWrittenSince(keys.swept, revision));\n",
    replace: "",
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
    name: "thread: a key that hangs keeps others from hearing of theirs",
    file: standby,
    find: "of heartbeatCalls(due)",
    replace: "of due.length === 0 ? [] : [due]",
  },
  {
    name: "cas: who had to stay is sorted behind others again",
    file: flights,
    find: "if (this.#isAnyLeft || half > maxChanges)",
    replace: "if (half > maxChanges)",
  },
  {
    name: "etcd: the leases of more than ten holders are not looked at",
    file: swapRequest,
    find: "    this.laterLooks = looks.slice(Math.max(LOOKED_AT, asked.length));",
    replace: "    this.laterLooks = [];",
  },
  {
    name: "etcd: who tries is refused for a holder that is gone, where there are many",
    file: swapRequest,
    find: "this.furtherLooks = looks.slice(LOOKED_AT, Math.max(LOOKED_AT, asked.length));",
    replace: "this.furtherLooks = [];",
  },
  {
    name: "etcd: a doubt is settled by the write of its own epoch",
    file: lease,
    find: "if (this.#doubted !== undefined && this.#doubted < BigInt(revision)) this.#doubted = undefined;",
    replace: "this.#doubted = undefined;",
  },
  {
    name: "etcd: what is known to have ended is compared as living",
    file: keeping,
    find: " || this.#keepers.hasEnded(keeper)) continue;",
    replace: ") continue;",
  },
  {
    name: "etcd: what was asked for is decided beside claims of the dead",
    file: "src/stores/cas/operation.ts",
    find: "const isUnfinished = kept?.isFull === true;",
    replace: "const isUnfinished = false;",
  },
  {
    name: "etcd: of one lock only eight holders are looked at",
    file: keeping,
    find: "const most = isWriting ? MOST_COMPARED : Number.POSITIVE_INFINITY;",
    replace: "const most = isWriting ? MOST_COMPARED : MOST_COMPARED;",
  },
  {
    name: "etcd: heartbeats wait for looks at many holders",
    file: swapRequest,
    find: "looksFor(changes.filter(({ keepers }) => keepers?.isAsked === true));",
    replace: "looksFor(changes);",
  },
  {
    name: "etcd: a try beside a heartbeat is refused for a holder that is gone",
    file: "src/stores/cas/operation.ts",
    find: 'const isAsked = operations.some(({ asked }) => asked.verb === "acquire");',
    replace: "const isAsked = false;",
  },
  {
    name: "etcd: a doubt from before a restore is settled by as many writes",
    file: lease,
    find: "if (doubted !== undefined && BigInt(revision) <= doubted) {",
    replace: "if (doubted !== undefined && BigInt(revision) <= 0n) {",
  },
  {
    name: "etcd: what was known before a restore is compared with what was written after it",
    file: swapRequest,
    find: "return expected !== undefined && historyOf(expected) !== this.#context.history;",
    replace: "return false;",
  },
  {
    name: "etcd: a look at a holder that fails is contention",
    file: swapRequest,
    find: "if (failure === undefined || keepers?.isAsked !== true) return false;",
    replace: "if (failure !== null) return false;",
  },
  {
    name: "etcd: a try that clears away one of the dead is refused for another",
    file: "src/stores/cas/operation.ts",
    find: "kept.isGuessing ? operations.filter(isGuessedRefusal) : none",
    replace: "none",
  },
  {
    name: "cas: claims that nobody gives back leave their records",
    file: "src/stores/cas/flights.ts",
    find: 'if (result?.state === "swapped")\n        keepUntilMs',
    replace: 'if (result?.state === "swapped" && passenger.combined.change.idle)\n        keepUntilMs',
  },
  {
    name: "cas: no sweep comes before records are old",
    file: "src/stores/cas/sweeper.ts",
    find: "    this.#early ??= ",
    replace: "    if (this.#closed) this.#early ??= ",
  },
  {
    name: "cas: a thousand records are swept each second",
    file: "src/stores/cas/sweeper.ts",
    find: "this.#clock.setTimer(tookMs, resolve);",
    replace: "this.#clock.setTimer(1_000, resolve);",
  },
];
