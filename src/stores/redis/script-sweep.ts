import { KEYS_OF } from "./script-spread.ts";

/**
 * The part of the script that deletes locks that expired and that no client asks for again. One operation in 64 looks at 2 random locks, and
 * at up to 256 more as long as an eighth of them are expired. A lock that the user has no right to stays.
 */
export const SWEEP = `
if us % 64 < n then
  local count, left = 2, 256
  repeat
    local some, swept = redis.pcall('HRANDFIELD', KEYS[1], count, 'WITHVALUES'), 0
    for i = 1, #some, 2 do
      local key, text = some[i], some[i + 1]
      local is_spread = byte(text) == 115 and #text == 33
      local expired = (is_spread or is_lone(text)) and cut('<d', text, is_spread and 26 or 18)
      if expired and expired + 1000 < now then
        redis.pcall('HDEL', KEYS[1], key)
        if is_spread then
          local partition = sub(KEYS[1], 1, -7)
          redis.pcall('DEL', ${KEYS_OF})
        end
        swept = swept + 1
      end
    end
    count, left = 64, left - count
  until left <= 0 or swept == 0 or swept * 8 < #some
end
`;
