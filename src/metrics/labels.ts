/** What series of one metric are told apart by. */
export type Labels = Readonly<Record<string, string>>;

/** The same for the same labels, in whatever order they were named. */
export function labelKey(labels: Labels): string {
  return JSON.stringify(Object.entries(labels).sort(([a], [b]) => (a < b ? -1 : 1)));
}
