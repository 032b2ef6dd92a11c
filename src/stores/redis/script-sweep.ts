import { KEYS_OF } from "./script-constants.ts";

/**
 * The part of the script that looks at some locks at random, and forgets those that expired so long ago that nobody was there to want
 * them; then at more, as long as many of them are like that. What the user has no right to stays: all that was asked for is done by
 * then. It stands in the middle of the script, because a function costs something at every call.
 */
export const SWEEP = `
if us % SWEEP_EVERY < n then
  local count, left = SWEPT_FIRST, SWEPT_MOST
  repeat
    local some, swept = redis.pcall('HRANDFIELD', KEYS[1], count, 'WITHVALUES'), 0
    for i = 1, #some, 2 do
      local key, text = some[i], some[i + 1]
      local is_lone = byte(text) == LONE and #text > SPREAD_LENGTH
      local is_spread = byte(text) == SPREAD and #text == SPREAD_LENGTH
      local expired = (is_lone or is_spread) and cut('<d', text, is_lone and 18 or 26)
      if expired and expired + SLACK_MS < now then
        redis.pcall('HDEL', KEYS[1], key)
        if is_spread then
          local partition = sub(KEYS[1], 1, -7)
          redis.pcall('DEL', ${KEYS_OF})
        end
        swept = swept + 1
      end
    end
    count, left = SWEPT_NEXT, left - count
  until left <= 0 or swept == 0 or swept * 8 < #some
end
`;
