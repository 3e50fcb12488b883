// Figures and names as people read them.

import type { Job } from "./wire.js";

const DASH = "–";

/** A text of unknown origin with everything visible that would reorder or hide what stands beside it. */
export function printable(text: string): string {
  return text.replace(
    /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g,
    (character) => `\\u{${character.charCodeAt(0).toString(16)}}`,
  );
}

export function percent(share: number | undefined): string {
  return share === undefined ? DASH : `${(100 * share).toFixed(1)} %`;
}

/** The share of its work that a job has done. */
export function doneOf(job: Job): number | undefined {
  return job.progress && job.progress[0] / job.progress[1];
}

export function micros(us: number | undefined): string {
  if (us === undefined) return DASH;
  if (us < 1000) return `${us.toFixed(us < 10 ? 1 : 0)} µs`;
  if (us < 1e6) return `${(us / 1000).toPrecision(3)} ms`;
  return `${(us / 1e6).toPrecision(3)} s`;
}

export function seconds(s: number): string {
  if (s < 1) return micros(s * 1e6);
  if (s < 60) return `${s.toFixed(1)} s`;
  const [whole, units] = [Math.floor(s), [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]] as const];
  const at = units.findIndex(([, unit]) => whole >= unit);
  const parts: string[] = [];
  let left = whole;
  for (const [name, unit] of units.slice(at, at + 2)) {
    parts.push(`${Math.floor(left / unit)} ${name}`);
    left %= unit;
  }
  return parts.join(" ");
}

export function bytes(amount: number | undefined): string {
  if (amount === undefined) return DASH;
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let at = 0;
  while (amount >= 1024 && at < units.length - 1) {
    amount /= 1024;
    at++;
  }
  return `${at === 0 ? amount : amount.toFixed(1)} ${units[at]}`;
}

export function count(value: number | undefined, digits = 1): string {
  return value === undefined ? DASH : value.toFixed(digits);
}

export function moment(us: number): string {
  return new Date(us / 1000).toLocaleString();
}

export function plural(amount: number, what: string): string {
  return `${amount} ${what}${amount === 1 ? "" : "s"}`;
}
