/** The part of the script that takes the text of a lone claim apart. Like the machine, it is made when first needed. */
export const LONE = `
local terms_by_text = {}
local function terms_of(text)
  local terms = terms_by_text[text]
  if not terms then
    terms = cjson.decode(text)
    if terms[3] == 0 then terms[3] = UNLIMITED end
    terms_by_text[text] = terms
  end
  return terms
end

local function read_lone(text)
  local fence, acquired, expires = cut('<ddd', text, 2)
  local id, token, terms_text, agreed_by = match(text, '^([^\\n]*)\\n([^\\n]*)\\n([^\\n]*)\\n?(.*)$', 26)
  if not id then error('not the text of a lock') end
  local terms = terms_of(terms_text)
  local claim = { id = id, token = token, ttl = terms[1], weight = terms[2], limit = terms[3], priority = terms[4], owner = terms[5],
    info = terms[6], application = terms[7], arrival = 0, fence = fence, acquired = acquired, expires = expires, promised = 0,
    agreed_by = agreed_by ~= '' and agreed_by or nil }
  return claim, terms_text
end

-- Replaces the fence of a grant by the one that several servers agree on. Refuses if another proposer may have handed out its fence.
local function agree(claim, token, terms)
  if not mark then error('not the mark of fences') end
  local own, fence, acquired, by = unpack(cjson.decode(terms))
  if mark < fence then mark, gave = fence, true end
  if not claim or claim.token ~= token or claim.fence == 0 or claim.expires <= now then return false end
  if claim.fence ~= own and claim.fence ~= fence then return false end
  local agreed_by = '*'
  if by ~= '' and (not claim.agreed_by or claim.agreed_by == by) then
    agreed_by = by
  elseif by ~= '' and claim.fence ~= fence then
    return false
  end
  claim.fence, claim.acquired, claim.agreed_by = fence, acquired, agreed_by
  return true
end

-- Operations on a lone claim that do not need sets, and are too rare for the fast path.
local lone_rules = {}

function lone_rules.try(text, key, name, terms)
  local claim, asking = read_lone(text), terms_of(terms)
  if sub(name, 1, #claim.id + 1) == claim.id .. '\\n' then return nil end
  return claim.weight + asking[2] > math.min(claim.limit, asking[3]) and '3\\n1' or nil
end

function lone_rules.confirm(text, key, name, terms)
  local claim, terms_text = read_lone(text)
  local is_holder = sub(text, 26, 25 + #name) == name
  if not agree(is_holder and claim, claim.token, terms) then return '0' end
  texts[key] = 'h' .. pack('<ddd', claim.fence, claim.acquired, claim.expires) .. name .. terms_text .. '\\n' .. claim.agreed_by
  return '1'
end
`;
