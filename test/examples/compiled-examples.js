/**
 * Preloaded into an example, and so into the processes that it starts: what was compiled takes the place of its TypeScript, which tsx would
 * compile once more in each of them. What it imports as "holdfast" is the built package, as for whoever runs it by hand.
 */
import { register } from "node:module";
import { isMainThread } from "node:worker_threads";

const root = new URL("../../", import.meta.url);
const compiled = new URL(".tests/", root);

if (isMainThread) register(import.meta.url);

/** @type {import("node:module").ResolveHook} */
export async function resolve(specifier, context, next) {
  if (/^holdfast(\/|$)/.test(specifier))
    return next(specifier, { ...context, parentURL: new URL("package.json", root).href });
  return next(compiledForm(specifier) ?? specifier, context);
}

/**
 * Programs are started by the names of their sources, which compiled ones look for beside themselves.
 *
 * @param {string} url
 */
function compiledForm(url) {
  const [, path] = /^(.*)\.ts$/.exec(url) ?? [];
  const from = [compiled, root].find(({ href }) => path?.startsWith(`${href}examples/`));
  return from === undefined ? undefined : new URL(`${path?.slice(from.href.length)}.js`, compiled).href;
}
