/**
 * The part of the script for calls in which all operations ask the same, and are simple: keys that nobody has are acquired, or locks are
 * released by their only holders. Most calls are like that. It looks first, then does all of it with one write, and has no reply if
 * it cannot: then nothing is done yet.
 *
 * It keeps no list of the keys that it has seen, which would cost as much as a command for each. That a key is asked for twice shows
 * in how many fields the write has added or removed.
 */
export const UNIFORM = `
if runs == 1 and verb == RELEASE then
  texts = call('HMGET', KEYS[1], unpack(words, 1, n))
  -- What is longer than the name of a claim and what stands before it. A text of the other form is shorter, and nobody but the claim
  -- itself knows its name.
  local width, done = #words[n + 1], 0
  local least, expiry_and_name = math.max(SPREAD_LENGTH, 25 + width), '<dc' .. width
  for i = 1, n do
    local text = texts[i]
    if not text or #text <= least then break end
    local expires, name = cut(expiry_and_name, text, 18)
    if name ~= words[n + i] or expires <= now then break end
    done = i
  end
  if done < n then
    table.insert(texts, 1, false)
  elseif call('HDEL', KEYS[1], unpack(words, 1, n)) == n then
    reply = n == 1 and '1' or '1\\n7'
  else
    -- Of those who name a lock twice, the second finds it released.
    local released = {}
    for i = 1, n do
      local key = words[i]
      words[n + i], released[key] = released[key] and '0' or '1', true
    end
    reply = table.concat(words, '\\n', n + 1, 2 * n)
  end
elseif runs == 1 and (verb == ACQUIRE or verb == TRY) then
  texts = call('HMGET', KEYS[1], '', unpack(words, 1, n))
  local mark, done = tonumber(texts[1] or 0), 1
  while done <= n and not texts[done + 1] do done = done + 1 end
  if done > n and mark and mark < UNLIMITED then
    local known, asks = tonumber(sub(ARGV[2], 1, 16)), ARGV[(asks1 - ZERO) * 64 + asks2 - ZERO]
    if known > mark then mark = known end
    local fence, ttl = us > mark and us or mark + 1, string.match(asks, '^%[(%d+)')
    -- In two parts, because %d knows no more than 31 bits on some machines, and %.0f is twice as dear.
    local low = fence % HALF
    local fence_text = string.format('%08d%08d', (fence - low) / HALF, low)
    -- A list of that size: one that grows costs more than what is in it.
    local first, kept, at = 'h' .. struct.pack('<ddd', fence, now, now + ttl), { byte(operations, 1, 2 * n + 2) }, 1
    for i = 1, n do
      at = at + 2
      kept[at], kept[at + 1] = words[i], first .. words[n + i] .. asks
    end
    kept[1], kept[2] = '', fence_text
    if call('HSET', KEYS[1], unpack(kept)) == (texts[1] and n or n + 1) then
      local now_text = fence == us and sub(fence_text, 1, 13) or string.format('%.0f', now)
      reply = '1\\n' .. fence_text .. '\\n' .. now_text .. '\\n' .. ttl
      if n > 1 then reply = reply .. '\\n7' end
    else
      -- A key is asked for twice. It is as if nothing had been done: nobody has seen it.
      call('HDEL', KEYS[1], unpack(words, 1, n))
    end
  end
end
`;
