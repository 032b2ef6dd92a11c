/**
 * The fast path of the script: a key that is free, or that one claim holds alone. It works on the text of the lock and has no sets.
 * `apply_alone` returns the answer, or nil if the operation takes the record machine.
 */
export const ALONE = `
local function held(fence, acquired, expires_in)
  return format('1\\n%.0f\\n%.0f\\n%.0f', fence, acquired, expires_in)
end

-- The first claims on free keys in a call share a fence, so that those with equal terms share most of their text and the answer.
local free_fence, free_terms, free_text, free_answer
local function acquire_free(key, name, terms)
  if texts[key] == nil then
    -- Deleted in this call, so an operation before may have had that fence.
    local fence, ttl = next_fence(0), match(terms, '^%[(%d+)')
    texts[key] = 'h' .. pack('<ddd', fence, now, now + ttl) .. name .. terms
    return held(fence, now, ttl)
  end
  if terms ~= free_terms then
    local ttl = match(terms, '^%[(%d+)')
    free_fence = free_fence or next_fence(0)
    free_terms, free_text = terms, 'h' .. pack('<ddd', free_fence, now, now + ttl)
    free_answer = held(free_fence, now, ttl)
  end
  texts[key] = free_text .. name .. terms
  return free_answer
end

local function try_held(text, name, terms)
  local id, terms_text = match(text, '^([^\\n]*)\\n[^\\n]*\\n([^\\n]*)', 26)
  if not id or sub(name, 1, #id + 1) == id .. '\\n' then return nil end
  local holder, asking = terms_of(terms_text), terms_of(terms)
  return holder[2] + asking[2] > math.min(holder[3], asking[3]) and '3\\n1' or nil
end

local function confirm_alone(key, text, name, terms)
  local claim, terms_text = read_lone(text)
  if not agree(claim, claim.token, terms) then return '0' end
  texts[key] = 'h' .. pack('<ddd', claim.fence, claim.acquired, claim.expires) .. name .. terms_text .. '\\n' .. claim.agreed_by
  return '1'
end

local width, expiry_and_name
local function apply_alone(verb, key, name, terms)
  local text = texts[key]
  if text and #text <= 33 or verb == 'look' then return nil end
  if #name ~= width then width, expiry_and_name = #name, '<dc' .. #name end
  local expires, held_name
  if text then
    if #text > 25 + width then
      expires, held_name = cut(expiry_and_name, text, 18)
    else
      expires = cut('<d', text, 18)
    end
    if expires <= now then texts[key], text = nil, nil end
  end
  if verb == 'acquire' or verb == 'try' then
    if not text then return acquire_free(key, name, terms) end
    return verb == 'try' and try_held(text, name, terms) or nil
  end
  if not text and verb ~= 'confirm' then return verb == 'release' and '0' or '4' end
  if held_name ~= name then return nil end
  if verb == 'confirm' then return confirm_alone(key, text, name, terms) end
  if verb == 'release' then
    texts[key] = nil
    return '1'
  end
  local renewed = math.max(expires, now + (terms or match(text, '^%[(%d+)', 26 + width)))
  local fence, acquired = cut('<dd', text, 2)
  texts[key] = sub(text, 1, 17) .. pack('<d', renewed) .. sub(text, 26)
  return held(fence, acquired, renewed - now)
end
`;
