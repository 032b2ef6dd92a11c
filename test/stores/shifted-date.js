/** Imported before a program that runs as if on a machine whose wall clock is wrong, by as many milliseconds as `SHIFT_MS` says. */
const byMs = Number(process.env["SHIFT_MS"]);
const rightNow = Date.now;

Date.now = () => rightNow() + byMs;
// Only the present is wrong: a time that is given stays what it is.
globalThis.Date = new Proxy(Date, {
  construct: (date, given, made) => Reflect.construct(date, given.length === 0 ? [Date.now()] : given, made),
  apply: () => new Date().toString(),
});
