import type { brokenStores } from "./broken-stores.ts";

/** Which contract test is there to tell each broken store. Others may fail along with it. */
export const toldBy: Readonly<Record<keyof typeof brokenStores, string>> = {
  "release ignores the token": "identity: a stranger's token neither renews nor releases a claim",
  "renew ignores the token": "identity: a stranger's token neither renews nor releases a claim",
  "a late release frees whoever holds": "identity: a late release does not free the next holder",
  "release says true for what is not there":
    "identity: a second release says that there was nothing to release",
  "renew shortens": "lifetimes: a heartbeat never shortens a life",
  "renew does nothing for waiting claims": "lifetimes: a heartbeat extends a waiting claim",
  "a claim is prolonged when it is granted": "lifetimes: being granted does not prolong a claim",
  "expiry is ignored": "lifetimes: a held claim ends with its ttl, and the key is free again",
  "waiting claims never expire": "lifetimes: a waiting claim ends with its ttl, and is never granted",
  "the caller's ttl judges every other holder":
    "lifetimes: a caller with a short ttl does not evict a holder with a long one",
  "the fence is constant": "fencing: fences grow along a queue",
  "fences go back when a key was idle":
    "fencing: fences grow across a key that was idle while others were busy",
  "a takeover keeps the fence": "identity: another token takes a held claim over, with a higher fence",
  "a takeover leaves the former token valid":
    "identity: another token takes a waiting claim over, at its place in the queue",
  "asking again is contention":
    "identity: a held claim asked for again is the same claim, with the same fence",
  "asking again joins the end of the queue":
    "identity: a waiting claim asked for again keeps its place in the queue",
  "a reused id is taken for the old claim":
    "identity: an id used again with another limit or priority is refused, and its claim goes on",
  "a try queues": "queueing: a try that fails leaves nothing behind",
  "a try overtakes the queue": "queueing: a late reader does not overtake a waiting writer",
  "priority is ignored": "queueing: higher priority goes first, and arrival decides among equals",
  "the newest goes first": "queueing: waiting claims are served in order of arrival",
  "limits are ignored": "granting: a mutex is held by one at a time",
  "weights are ignored": "granting: a semaphore admits its limit's worth of weight",
  "readers are writers": "granting: readers share a key, and shut a writer out",
  "a queue is never full": "queueing: a full queue refuses another waiter, and nobody else",
  "an impossible ttl is corrected silently":
    "values: a bad request is refused with the field's name, and leaves nothing",
  "info is dropped": "looking: a look shows all of a claim but its token, through any instance",
  "batches are answered out of order": "batches: a batch of heartbeats is answered in the order asked",
  "a batch stops at the first that is not there":
    "batches: a batch of releases is answered in the order asked, one after the other",
  "a listing ends after its first page":
    "looking: a listing shows every key with the prefix over several pages",
  "a page can be asked for only once":
    "looking: a page that has to be asked for twice loses no key, nor does the last one",
  "a listing ignores its prefix": "looking: a listing takes its prefix literally",
  "a listing reads its prefix as a pattern": "looking: a listing takes its prefix literally",
  "a look shows the token": "looking: a look shows all of a claim but its token, through any instance",
  "counts are cut with the lists":
    "looking: long lists of claims are cut to what was asked for, and the counts are whole",
  "waiting claims are shown in any order":
    "looking: long lists of claims are cut to what was asked for, and the counts are whole",
  "keys are compared without case": "values: different keys never collide, however much alike",
  "spaces at the end of a key are lost": "values: different keys never collide, however much alike",
  "keys are normalised": "values: different keys never collide, however much alike",
  "nobody is told of a grant":
    "pushing: a grant is pushed to the claim's owner, through the owner's own instance",
  "everybody is told of a grant": "pushing: a grant is pushed to nobody but the claim's owner",
  "a push names another fence than the grant's":
    "pushing: a push that names a fence names the grant's, which is above what the waiter was told",
  "a waiter is not told the fence of the latest grant":
    "pushing: a push that names a fence names the grant's, which is above what the waiter was told",
  "unsubscribing does nothing": "pushing: an unsubscribed listener is not called",
  "grants of an unknown claim are pushed": "pushing: each of several claims granted together is pushed",
  "a closed store goes on": "closing: a closed store refuses every verb",
  "verbs throw instead of rejecting":
    "values: a bad request is refused with the field's name, and leaves nothing",
};
