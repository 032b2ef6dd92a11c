/** Bugs to plant in the script, before its constants are put in. The differential test is good if it finds them all. */
export interface ScriptMutant {
  readonly name: string;
  /** What stands in the script, exactly once. */
  readonly find: string;
  readonly replace: string;
  /** Whether it takes thousands of operations until it shows. `npm run mutants` waits for that; `npm test` does not. */
  readonly isRare?: true;
}

export const scriptMutants: readonly ScriptMutant[] = [
  {
    name: "a lone holder lives one tick too long",
    find: "if held_name == name and expires > now then",
    replace: "if held_name == name and expires >= now then",
    isRare: true,
  },
  {
    name: "a lone holder lives one tick too long where all are released",
    find: "or expires <= now then break end",
    replace: "or expires < now then break end",
    isRare: true,
  },
  {
    name: "a release among others does not compare the name",
    find: "if name ~= words[n + i] or expires",
    replace: "if expires",
  },
  {
    name: "who releases a lock twice in a call is told so twice",
    find: "elseif call('HDEL', KEYS[1], unpack(words, 1, n)) == n then",
    replace: "elseif call('HDEL', KEYS[1], unpack(words, 1, n)) > 0 then",
  },
  {
    name: "who asks for a key twice in a call is granted it twice",
    find: "if call('HSET', KEYS[1], unpack(kept)) == (texts[1] and n or n + 1) then",
    replace: "if call('HSET', KEYS[1], unpack(kept)) > 0 then",
    isRare: true,
  },
  {
    name: "a key that somebody has is granted among others",
    find: "while done <= n and not texts[done + 1] do done = done + 1 end",
    replace: "done = n + 1",
  },
  {
    name: "the first mark of a partition is taken for a lock that was asked for twice",
    find: "== (texts[1] and n or n + 1) then",
    replace: "== n then",
    isRare: true,
  },
  {
    name: "all that is acquired in a call is of the first who asked",
    find: "first .. words[n + i] .. asks",
    replace: "first .. words[n + 1] .. asks",
  },
  {
    name: "a lone holder that is not named in full lives one tick too long",
    find: "if expires <= now then",
    replace: "if expires < now then",
    isRare: true,
  },
  {
    name: "a claim among several lives one tick too long",
    find: "call('ZRANGEBYSCORE', by_expiry, '-inf', now)",
    replace: "call('ZRANGEBYSCORE', by_expiry, '-inf', now - 1)",
  },
  {
    name: "a set that is lost is not missed",
    find: "if count ~= 3 then return count == 5 end",
    replace: "if count ~= 3 then return count >= 3 end",
  },
  {
    name: "both sets of the waiters are not missed",
    find: "return holders > 0 and redis.call('HLEN', claims) == holders",
    replace: "return holders > 0",
  },
  {
    name: "sets that are left over count for a lone holder",
    find: "if record.lone then return call('EXISTS', keys_of(record.key)) > 0 end",
    replace: "if record.lone then return false end",
  },
  {
    name: "a waiter never expires",
    find: "ipairs({ record.held_key, record.waiting_key })",
    replace: "ipairs({ record.held_key })",
  },
  {
    name: "priority does not count",
    find: "(65535 - claim[PRIORITY]) * 137438953472 + claim[ARRIVAL]",
    replace: "claim[ARRIVAL]",
  },
  {
    name: "arrival does not count",
    find: "137438953472 + claim[ARRIVAL]",
    replace: "137438953472",
  },
  {
    name: "arrivals are counted anew for every batch",
    find: "record.fence, record.arrivals, record.weight, record.last = struct.unpack('<dddd', text, 2)",
    replace: "record.fence, _, record.weight, record.last = struct.unpack('<dddd', text, 2)",
  },
  {
    name: "a lease that was taken over is free as soon as the taker lets go",
    find: "if token ~= '' and claim[PROMISED] > now then",
    replace: "if false then",
  },
  {
    name: "what was promised to the former holder is not noted",
    find: "        claim[PROMISED] = claim[EXPIRES]\n",
    replace: "",
  },
  {
    name: "whoever takes a lease over gets its old fence",
    find: "          stamp(record, claim)\n          claim[PROMISED]",
    replace: "          claim[PROMISED]",
  },
  {
    name: "those behind the head ask again when the head should",
    find: "if head[ID] ~= claim[ID] then",
    replace: "if false then",
  },
  {
    name: "the weight of a holder stays when it goes",
    find: "      record.weight = record.weight - claim[WEIGHT]\n",
    replace: "",
  },
  {
    name: "the limits of those who hold do not count",
    find: "tightest and math.min(claim[LIMIT], tonumber(tightest)) or claim[LIMIT]",
    replace: "claim[LIMIT]",
  },
  {
    name: "the limit of a holder stays when it goes",
    find: "      call('ZREM', record.limits_key, claim[ID])\n",
    replace: "",
  },
  {
    name: "a granted waiter can still expire as a waiter",
    find: "    call('ZREM', record.waiting_key, claim[ID])\n",
    replace: "",
  },
  {
    name: "spreading a record forgets its holder",
    find: "      hold(record, record.lone)\n",
    replace: "",
  },
  {
    name: "a fence is the time, also where the clock stood still or went back",
    find: "local fence, ttl = us > mark and us or mark + 1,",
    replace: "local fence, ttl = us,",
  },
  {
    name: "a fence ignores the time",
    find: "local fence, ttl = us > mark and us or mark + 1,",
    replace: "local fence, ttl = mark + 1,",
  },
  {
    name: "a fence in a mixed call is the time, also where the clock stood still or went back",
    find: "call_fence = us > mark and us or mark + 1",
    replace: "call_fence = us",
  },
  {
    name: "a fence in a mixed call ignores the time",
    find: "call_fence = us > mark and us or mark + 1",
    replace: "call_fence = mark + 1",
  },
  {
    name: "a fence among several is the time, also where the clock stood still or went back",
    find: "math.max(us, mark + 1, last + 1)",
    replace: "math.max(us, last + 1)",
  },
  {
    name: "a fence among several ignores the time",
    find: "math.max(us, mark + 1, last + 1)",
    replace: "math.max(mark + 1, last + 1)",
  },
  {
    name: "a fence that was not given out is used up",
    find: "    if not text and mark then\n",
    replace: "    mark = mark and mark + 1\n    if not text and mark then\n",
  },
  {
    name: "a grant that counts on has the ttl of another",
    find: "tonumber(string.match(asks, '^%[(%d+)')), false\n",
    replace: "tonumber(string.match(asks, '^%[(%d+)')), follows\n",
    isRare: true,
  },
  {
    name: "what was released in the same call is still seen",
    find: "words[n + i], seen[key] = answer, true",
    replace: "words[n + i], seen[key] = answer, verb ~= RELEASE or nil",
  },
  {
    name: "what was released in the same call is deleted after what follows",
    find: "    if goes > 0 then call('HDEL', KEYS[1], unpack(gone, 1, goes)) end\n",
    replace: "",
  },
  {
    name: "what was granted in the same call is written after what follows",
    find: "    if keeps > 0 then call('HSET', KEYS[1], unpack(kept, 3, keeps + 2)) end\n",
    replace: "",
  },
  {
    name: "a record that is spread and not yet saved is taken for what it was",
    find: "words[n + i], seen[key] = answer, true",
    replace: "words[n + i], seen[key] = answer, not careful or nil",
  },
  {
    name: "locks that are released stay",
    find: "if goes > 0 then call('HDEL', KEYS[1], unpack(words, 1, goes)) end\n",
    replace: "",
  },
  {
    name: "the partition's fence is not kept in a call where all acquire",
    find: "kept[1], kept[2] = '', fence_text",
    replace: "kept[1], kept[2] = '', texts[1] or '1'",
  },
  {
    name: "the partition's fence is not kept",
    find: "if gave then\n",
    replace: "if false then\n",
  },
  {
    name: "a server that has lost its fences does not learn of them from its clients",
    find: "    if known > mark then mark = known end\n",
    replace: "",
    isRare: true,
  },
  {
    name: "a client that has seen little makes the server forget",
    find: "    if known > mark then mark = known end\n",
    replace: "    mark = known\n",
    isRare: true,
  },
  {
    name: "a server that has lost its fences does not learn of them from a mixed call",
    find: "last < UNLIMITED and math.max(last, tonumber(sub(ARGV[2], 1, 16)))",
    replace: "last",
    isRare: true,
  },
  {
    name: "a mixed call of a client that has seen little makes the server forget",
    find: "last < UNLIMITED and math.max(last, tonumber(sub(ARGV[2], 1, 16)))",
    replace: "tonumber(sub(ARGV[2], 1, 16))",
    isRare: true,
  },
  {
    name: "who learns of a grant from the answer is told once more",
    find: "if head[TOKEN] ~= asked then",
    replace: "if true then",
  },
  {
    name: "a waiter is told another fence than that of the latest grant",
    find: "retry - now, record.fence",
    replace: "retry - now, claim[FENCE]",
  },
  {
    name: "a grant is published with another fence",
    find: "format('%.0f', grant[4])",
    replace: "format('%.0f', grant[4] + 1)",
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
    name: "a heartbeat can shorten a lone lease",
    find: "math.max(expires, now + (asks or string.match(text, '^%[(%d+)', 26 + width)))",
    replace: "now + (asks or string.match(text, '^%[(%d+)', 26 + width))",
  },
  {
    name: "a heartbeat can shorten a lone lease that is not named in full",
    find: "if until_ms > expires then\n      expires = until_ms",
    replace: "if true then\n      expires = until_ms",
  },
  {
    name: "asking again can shorten a lease",
    find: "claim[EXPIRES] = math.max(claim[EXPIRES], now + terms[1])",
    replace: "claim[EXPIRES] = now + terms[1]",
  },
  {
    name: "somebody else's try takes a waiter out of the queue",
    find: "      if claim[FENCE] == 0 and not wait then return 3, 1 end\n",
    replace: "",
  },
  {
    name: "a try that fails stays in the queue",
    find: "        remove(record, claim)\n        return 3, 1",
    replace: "        return 3, 1",
  },
  {
    name: "nobody is granted what was released",
    find: "        remove(record, claim)\n        grant_head(record)\n      end\n      return 1",
    replace: "        remove(record, claim)\n      end\n      return 1",
  },
  {
    name: "a queue holds one less than it may",
    find: "if call('ZCARD', record.queue_key) > settings()[MAX_WAITERS] then",
    replace: "if call('ZCARD', record.queue_key) >= settings()[MAX_WAITERS] then",
    isRare: true,
  },
  {
    name: "an id can be used again with another priority",
    find: " or claim[PRIORITY] ~= terms[4] then",
    replace: " then",
  },
  {
    name: "release does not compare the token",
    find: "if not claim or (token ~= '' and token ~= claim[TOKEN]) then return 0 end",
    replace: "if not claim then return 0 end",
  },
  {
    name: "release of a lone lease does not compare the token",
    find: "    if token ~= '' and token ~= held_token then\n",
    replace: "    if false then\n",
  },
  {
    name: "a token that begins with the asked one is taken for it",
    find: "if held_name == name and",
    replace: "if sub(held_name, 1, -2) == sub(name, 1, -2) and",
  },
  {
    name: "a look counts the dead",
    find: "if claim[EXPIRES] > now then table.insert",
    replace: "if true then table.insert",
  },
  {
    name: "an idle key stays",
    find: "if call('HLEN', record.claims_key) == 0 then",
    replace: "if false then",
  },
  {
    name: "an operation of a batch does not see what the one before it did",
    find: "    records[key] = record\n",
    replace: "",
  },
  {
    name: "a record with several claims is dropped with the claim that was written last",
    find: "record.last = math.max(record.last, claim[EXPIRES])",
    replace: "record.last = claim[EXPIRES]",
  },
  {
    name: "the sets of a record have no time to live",
    find: "          for _, key in ipairs({ keys_of(record.key) }) do call('PEXPIREAT', key, record.last + SLACK_MS) end\n",
    replace: "",
  },
  {
    name: "the weight of those whose sets are gone still counts",
    find: "record.arrivals, record.weight, record.last = record.lone and 1 or 0, 0, 0",
    replace: "record.arrivals, record.last = record.lone and 1 or 0, 0",
  },
];
