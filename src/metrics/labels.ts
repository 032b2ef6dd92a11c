/** The labels of a series. */
export type Labels = Readonly<Record<string, string>>;

/** Does not depend on the order of the labels. */
export function labelKey(labels: Labels): string {
  return JSON.stringify(Object.entries(labels).sort(([a], [b]) => (a < b ? -1 : 1)));
}
