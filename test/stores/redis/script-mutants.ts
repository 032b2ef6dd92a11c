/** Bugs to plant in the script. The differential test is good if it finds them all. */
export interface ScriptMutant {
  readonly name: string;
  /** What stands in the script, exactly once. */
  readonly find: string;
  readonly replace: string;
}

export const scriptMutants: readonly ScriptMutant[] = [
  {
    name: "a claim among few lives one tick too long",
    find: "if list[i][EXPIRES] <= now then",
    replace: "if list[i][EXPIRES] < now then",
  },
  {
    name: "a holder among many lives one tick too long",
    find: "call('ZRANGEBYSCORE', record.held_key, '-inf', now)",
    replace: "call('ZRANGEBYSCORE', record.held_key, '-inf', now - 1)",
  },
  {
    name: "a waiter among many never expires",
    find: "call('ZRANGEBYSCORE', record.waiting_key, '-inf', now)",
    replace: "{}",
  },
  {
    name: "priority does not count among few",
    find: "queue[i][PRIORITY] < claim[PRIORITY]",
    replace: "false",
  },
  {
    name: "priority does not count among many",
    find: "(65535 - claim[PRIORITY]) * 137438953472 + claim[ARRIVAL]",
    replace: "claim[ARRIVAL]",
  },
  {
    name: "arrival does not count among many",
    find: "137438953472 + claim[ARRIVAL]",
    replace: "137438953472",
  },
  {
    name: "arrivals are counted anew for every batch",
    find: "record.exists, record.fence, record.arrivals = true, stored[1], stored[2]",
    replace: "record.exists, record.fence, record.arrivals = true, stored[1], 0",
  },
  {
    name: "a lease that was taken over is free as soon as the taker lets go",
    find: "if op[4] ~= '' and claim[PROMISED] > now then",
    replace: "if false then",
  },
  {
    name: "what was promised to the former holder is not noted",
    find: "      claim[PROMISED] = claim[EXPIRES]\n",
    replace: "",
  },
  {
    name: "whoever takes a lease over gets its old fence",
    find: "      claim[FENCE], claim[ACQUIRED] = next_fence(record), now\n      claim[PROMISED]",
    replace: "      claim[PROMISED]",
  },
  {
    name: "those behind the head ask again when the head should",
    find: "if head[ID] ~= claim[ID] then",
    replace: "if false then",
  },
  {
    name: "the weight of a holder among many stays when it goes",
    find: "  record.weight = record.weight - claim[WEIGHT]\n",
    replace: "",
  },
  {
    name: "the limits of few who hold do not count",
    find: "limit = math.min(limit, claim[LIMIT]) end",
    replace: "end",
  },
  {
    name: "the limit of a holder among many stays when it goes",
    find: "  call('ZREM', record.limits_key, claim[ID])\n",
    replace: "",
  },
  {
    name: "a granted waiter among many can still expire as a waiter",
    find: "  call('ZREM', record.waiting_key, claim[ID])\n",
    replace: "",
  },
  {
    name: "spreading a record adds to its weight",
    find: "record.weight, record.last = 0, 0",
    replace: "record.weight, record.last = 1, 0",
  },
  {
    name: "spreading a record forgets its waiters",
    find: "  for _, claim in ipairs(queue) do many.enqueue(record, claim) end\n",
    replace: "",
  },
  {
    name: "a fence is the time, also where the clock stood still or went back",
    find: "high = math.max(us, high + 1)",
    replace: "high = us",
  },
  {
    name: "a fence ignores the time",
    find: "high = math.max(us, high + 1)",
    replace: "high = high + 1",
  },
  {
    name: "the partition's fence is not kept",
    find: "if high then call('SET', KEYS[1], number(high)) end",
    replace: "",
  },
  {
    name: "who learns of a grant from the answer is told once more",
    find: "if head[TOKEN] ~= asked then",
    replace: "if true then",
  },
  {
    name: "everybody's grants are told to whoever asked",
    find: "if own[owner] then",
    replace: "if true then",
  },
  {
    name: "a heartbeat can shorten a lease",
    find: "if expires > claim[EXPIRES] then",
    replace: "if true then",
  },
  {
    name: "asking again can shorten a lease",
    find: "claim[EXPIRES] = math.max(claim[EXPIRES], now + op[8])",
    replace: "claim[EXPIRES] = now + op[8]",
  },
  {
    name: "somebody else's try takes a waiter out of the queue",
    find: "    if claim[FENCE] == 0 and op[9] == 0 then return { 3, 1 } end\n",
    replace: "",
  },
  {
    name: "a try that fails stays in the queue",
    find: "    remove(record, claim)\n    return { 3, 1 }",
    replace: "    return { 3, 1 }",
  },
  {
    name: "nobody is granted what was released",
    find: "    remove(record, claim)\n    grant_head(record)\n  end\n  return 1",
    replace: "    remove(record, claim)\n  end\n  return 1",
  },
  {
    name: "a queue holds one less than it may",
    find: "if form.waiting(record) > max_waiters then",
    replace: "if form.waiting(record) >= max_waiters then",
  },
  {
    name: "an id can be used again with another priority",
    find: " or claim[PRIORITY] ~= op[7] then",
    replace: " then",
  },
  {
    name: "release does not compare the token",
    find: "if not claim or (op[4] ~= '' and op[4] ~= claim[TOKEN]) then return 0 end",
    replace: "if not claim then return 0 end",
  },
  {
    name: "a look counts the dead",
    find: "    if claim[EXPIRES] > now then\n      alive",
    replace: "    if true then\n      alive",
  },
  {
    name: "an idle key stays",
    find: "if record.exists then call('DEL', record.key) end",
    replace: "",
  },
  {
    name: "a record with few has no time to live",
    find: ", 'PX', last - now + 1000)",
    replace: ")",
  },
  {
    name: "a record with many is dropped with the claim that was written last",
    find: "record.last = math.max(record.last, claim[EXPIRES])",
    replace: "record.last = claim[EXPIRES]",
  },
  {
    name: "the sets of a record with many have no time to live",
    find: "  for _, key in ipairs(keys) do call('PEXPIREAT', key, number(record.last + 1000)) end\n",
    replace: "",
  },
];
