/**
 * The Lua around fenced writes. Redis runs a script without interruption, so that between the comparison and the write nobody
 * else comes in; there are no interleavings but the order of the scripts.
 *
 * KEYS[1]   the mark: the newest fence that has written, in decimal digits
 * KEYS[…]   the keys of what is wrapped
 * ARGV[1]   the fence of this write, in decimal digits without zeros in front
 * ARGV[2]   how long the mark is kept after this write, in milliseconds; '0' for ever
 * ARGV[3]   the number of the call
 * ARGV[…]   the arguments of what is wrapped
 *
 * Replies the number of the call, and 1 with what the wrapped script returned, 0 with the mark when that is newer, or -1 when the
 * mark is no fence.
 *
 * A number of Lua's is a double, which cannot tell fences above 2^53 apart. So fences are compared as texts: the longer one is
 * the greater, and of two with the same length the later one in the order of digits.
 *
 * The mark is raised before the wrapped script runs. A script that fails half-way is not undone by Redis: what it wrote must not be
 * there without the mark.
 */
const GUARD = `
local mark = redis.call('GET', KEYS[1])
if mark then
  if not string.find(mark, '^[1-9]%d*$') then return {ARGV[3], -1} end
  if #mark > #ARGV[1] or (#mark == #ARGV[1] and mark > ARGV[1]) then return {ARGV[3], 0, mark} end
end
if ARGV[2] == '0' then
  redis.call('SET', KEYS[1], ARGV[1])
else
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
end
local keys, arguments = {}, {}
for place = 2, #KEYS do keys[place - 1] = KEYS[place] end
for place = 4, #ARGV do arguments[place - 3] = ARGV[place] end
return {ARGV[3], 1, fenced(keys, arguments)}
`;

/** KEYS[1]: what is set. ARGV[1]: its value. ARGV[2], if there is one: its lifetime in milliseconds. */
export const SET = `
if ARGV[2] then return redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) end
return redis.call('SET', KEYS[1], ARGV[1])
`;

/**
 * A script that runs only behind the guard. It becomes a function with KEYS and ARGV of its own, which begin with the caller's, as
 * it was written for. What it says about itself in its first line ("#!lua …") has to stay there.
 */
export function guarded(script: string): string {
  const [, shebang = "", body = ""] = /^(#![^\n]*\n)?([\s\S]*)$/.exec(script) ?? [];
  return `${shebang}local function fenced(KEYS, ARGV)\n${body}\nend\n${GUARD}`;
}
