// Figures and names as people read them.

import { ACTIVE, type Figure, type Job } from "./wire.js";

const DASH = "–";

/** A text of unknown origin in which nothing reorders or hides what stands beside it. */
export function printable(text: string): string {
  return text.replace(
    /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g,
    (character) => `\\u{${character.charCodeAt(0).toString(16)}}`,
  );
}

export function percent(share: number): string {
  return `${(100 * share).toFixed(1)} %`;
}

export function duration(ns: number): string {
  const s = ns / 1e9;
  if (ns < 1e6) return `${(ns / 1000).toFixed(ns < 1e4 ? 1 : 0)} µs`;
  if (s < 1) return `${(ns / 1e6).toPrecision(3)} ms`;
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

export function bytes(amount: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let at = 0;
  while (amount >= 1024 && at < units.length - 1) {
    amount /= 1024;
    at++;
  }
  return `${at === 0 ? amount : amount.toFixed(1)} ${units[at]}`;
}

export function moment(ns: number): string {
  return new Date(ns / 1e6).toLocaleString();
}

/** The value of a figure of a job. */
export function valueOf(figure: Figure, job: Job): string {
  const value = job[figure.name];
  if (value === undefined) return DASH;
  if (typeof value === "string") {
    if (figure.unit !== "state") return printable(value);
    return ACTIVE.includes(job.state) ? "runs" : value.replaceAll("_", " ");
  }
  switch (figure.unit) {
    case "share":
      return `${isLow(figure, value) ? "⚠ " : ""}${percent(value)}`;
    case "percent":
      return `${value} %`;
    case "ns":
      return duration(value);
    case "moment":
      return moment(value);
    case "bytes":
      return bytes(value);
    case "mean":
      return value.toFixed(2);
    default:
      return String(value);
  }
}

function isLow({ least }: Figure, value: number): boolean {
  return least !== null && value < least;
}

/** The explanation of a figure, and from where on it is marked. */
export function helpOf({ help, least }: Figure): string {
  return least === null ? help : `${help}; marked where it is less than ${percent(least)}`;
}

export function titleOf({ title }: Pick<Figure, "title">): string {
  return title.charAt(0).toUpperCase() + title.slice(1);
}

export function plural(amount: number, what: string): string {
  return `${amount} ${what}${amount === 1 ? "" : "s"}`;
}
