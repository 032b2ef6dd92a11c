/** Keeps a body where it is until the test lets it pass. */
export function gate(): { readonly open: Promise<void>; readonly pass: () => void } {
  let pass = () => {};
  const open = new Promise<void>((resolve) => {
    pass = resolve;
  });
  return { open, pass };
}
