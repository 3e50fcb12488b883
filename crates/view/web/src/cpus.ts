// Lists of CPUs: pairs of first and last number, flat. The same few lists come again and again.

export type Ranges = readonly number[];

const known = new Map<string, Ranges>();
/** Far more than the lists of one machine's jobs; then it begins anew. */
const KNOWN_MAX = 10_000;

export function ranges(list: string): Ranges {
  const found = known.get(list);
  if (found) return found;
  const flat: number[] = [];
  for (const part of list.split(",")) {
    if (part === "") continue;
    const [first, last] = part.split("-");
    flat.push(Number(first), Number(last ?? first));
  }
  if (known.size >= KNOWN_MAX) known.clear();
  known.set(list, flat);
  return flat;
}

export function amount(of: Ranges): number {
  let sum = 0;
  for (let at = 0; at < of.length; at += 2) sum += of[at + 1]! - of[at]! + 1;
  return sum;
}

export function highest(of: Ranges): number {
  return of.length ? of[of.length - 1]! : -1;
}

export function has(of: Ranges, cpu: number): boolean {
  for (let at = 0; at < of.length; at += 2) {
    if (cpu >= of[at]! && cpu <= of[at + 1]!) return true;
  }
  return false;
}
