// What is looked at lies in the address, so that it can be sent to somebody: run, state of workers, text.

const NAMES = ["run", "state", "q"];

export function read() {
  const given = new URLSearchParams(location.search);
  return Object.fromEntries(NAMES.map((name) => [name, given.get(name) ?? ""]));
}

export function write(filters) {
  const given = new URLSearchParams(location.search);
  for (const name of NAMES) {
    if (filters[name]) given.set(name, filters[name]);
    else given.delete(name);
  }
  const query = given.toString();
  const next = (query ? `?${query}` : location.pathname) + location.hash;
  if (next !== location.search + location.hash) history.replaceState(null, "", next);
}

// An endpoint of a run, relative to the page.
export const endpoint = (run, rest = "") => `status/${encodeURIComponent(run)}${rest}`;
