/**
 * The part of the script that goes through the operations of a call one by one. What is simple is done here, inline and without functions;
 * all else is left to the rules (`script-rules.ts`).
 */
export const MIXED = `
local format, pack = string.format, struct.pack
-- The highest fence of this partition so far, whether or not its record still exists, or what the client has seen of a server that
-- was failed over from; whether a higher one is given out here; and the one that all get who acquire what nobody has.
local mark, gave, call_fence
-- The run of operations that ask the same: where the next is told of, with which operation this ends, what they ask.
local at, run_ends, asks = 5, 0, nil
-- What was asked for last, the beginning of the texts of all that ask for it, and whether the last claim in the reply was granted just that.
local known_asks, ttl, first, follows
-- The length of the name of the last holder, and how to cut it out together with the time that it expires at.
local width, expiry_and_name
-- What is to be written: how many locks are released, which have taken the place of keys that are done with; fields and their texts,
-- behind the mark; and how many.
local goes, kept, keeps = 0, nil, 0
local seen, careful = {}, nil

for i = 1, n do
  if i > run_ends then
    local code, asks1, asks2, count1, count2 = byte(operations, at, at + 4)
    verb, asks = code - ZERO, ARGV[(asks1 - ZERO) * 64 + asks2 - ZERO]
    at, run_ends = at + 5, run_ends + (count1 - ZERO) * 64 + count2 - ZERO
  end
  local key, name, text = words[i], words[n + i], texts[i + 1]
  local answer

  -- What most operations are: a key that nobody has is acquired, or its only holder, who is named in full, stays or goes. Texts
  -- are compared and cut here, not taken apart. Where it is not that simple nothing is done, and there is no answer yet.
  if seen[key] or verb == LOOK then
    -- What was read of that key is no longer so, or it takes more than a text.
    answer = nil
  elseif verb == ACQUIRE or verb == TRY then
    if not text and not mark then
      local last = tonumber(texts[1] or 0)
      mark = last and last < UNLIMITED and math.max(last, tonumber(sub(ARGV[2], 1, 16)))
    end
    if not text and mark then
      if not call_fence then
        call_fence = us > mark and us or mark + 1
        mark, gave = call_fence, true
      end
      if asks ~= known_asks then
        known_asks, ttl, follows = asks, tonumber(string.match(asks, '^%[(%d+)')), false
        first = 'h' .. pack('<ddd', call_fence, now, now + ttl)
      end
      kept, keeps = kept or { byte(operations, 1, 2 * n + 2) }, keeps + 2
      kept[keeps + 1], kept[keeps + 2] = key, first .. name .. asks
      if follows then
        answer = '6'
      else
        -- In two parts, because %d knows no more than 31 bits on some machines, and %.0f is twice as dear.
        local low, low_now = call_fence % HALF, now % HALF
        answer = format('1\\n%d%08d\\n%d%08d\\n%d', (call_fence - low) / HALF, low, (now - low_now) / HALF, low_now, ttl)
        follows = true
      end
    end
  -- A text of the other form is shorter, and nobody but the claim itself knows its name.
  elseif text and #text > SPREAD_LENGTH and #text > 25 + #name then
    if #name ~= width then
      width = #name
      expiry_and_name = '<dc' .. width
    end
    local expires, held_name = cut(expiry_and_name, text, 18)
    if held_name == name and expires > now then
      if verb == RELEASE then
        goes = goes + 1
        words[goes], answer = key, '1'
      else
        follows = false
        -- Written also where it is as it was: a replica would not know better, and refuses.
        local until_ms = math.max(expires, now + (asks or string.match(text, '^%[(%d+)', 26 + width)))
        kept, keeps = kept or { byte(operations, 1, 2 * n + 2) }, keeps + 2
        kept[keeps + 1], kept[keeps + 2] = key, sub(text, 1, 17) .. pack('<d', until_ms) .. sub(text, 26)
        local fence, acquired = cut('<dd', text, 2)
        answer = format('1\\n%.0f\\n%.0f\\n%d', fence, acquired, until_ms - now)
      end
    end
  end

  if not answer then
    careful = careful or make_careful(us, now)
    careful.mark, careful.gave = mark, gave
    local ok, result = pcall(careful.apply, i, verb, key, name, asks, words, goes, kept, keeps)
    mark, gave, follows, goes, keeps = careful.mark, careful.gave, false, 0, 0
    answer = ok and result or careful.answer_to(i, result, key, words, n)
    if not answer then
      failure = careful.text_of(result)
      break
    end
  end
  words[n + i], seen[key] = answer, true
end

-- What was done is written down in any case: a fence that was given out, and how many hold a lock. A server that is out of memory
-- refuses a script's first write and no other: so what takes no memory comes first.
if goes > 0 then call('HDEL', KEYS[1], unpack(words, 1, goes)) end
-- Perhaps there was nothing to write. A replica gives such answers as well, by what it knows, which may be old: that the claim of a holder
-- is gone, or that a lock is taken. But it refuses every write, also one that changes nothing: no lock has such a name.
if careful and careful.alone and goes + keeps == 0 and not gave then call('HDEL', KEYS[1], '\\n') end
if gave then
  kept = kept or {}
  kept[1], kept[2] = '', format('%08d%08d', (mark - mark % HALF) / HALF, mark % HALF)
end
if gave or keeps > 0 then call('HSET', KEYS[1], unpack(kept, gave and 1 or 3, keeps + 2)) end
local last = 2 * n
if careful then
  careful.save()
  last = careful.tell(words, last)
end
reply = table.concat(words, '\\n', n + 1, last)
`;
