/** Bugs to plant in the script. The differential test is good if it finds them. */
export const scriptMutants: readonly {
  readonly name: string;
  readonly find: string;
  readonly replace: string;
}[] = [
  {
    name: "a lone lock is released by a claim of another name",
    find: "if held_name ~= name then return nil end",
    replace: "",
  },
  {
    name: "a key that was released in a call is granted with the same fence again",
    find: "if texts[key] == nil then",
    replace: "if false then",
  },
  {
    name: "a late arrival is granted beside the head of the queue",
    find: "local id = call('ZRANGE', record.queue, 0, 0)[1]",
    replace: "local id = call('ZREVRANGE', record.queue, 0, 0)[1]",
  },
  {
    name: "the limit of holders does not bind a claim",
    find: "local limit = tightest and math.min(claim.limit, tonumber(tightest)) or claim.limit",
    replace: "local limit = claim.limit",
  },
  {
    name: "a set that was lost goes unnoticed",
    find: "and is_whole(keys_of(record.key))",
    replace: "",
  },
  {
    name: "a grant is told to a caller that has it from the answer",
    find: "if head.token ~= asked then",
    replace: "if true then",
  },
];
