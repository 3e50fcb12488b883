// The colours of pictures. A job has the same colour in all of them, for as long as it lives.

export interface Palette {
  dark: boolean;
  /** Nobody's CPU. */
  ground: string;
  grid: string;
  text: string;
  quiet: string;
  accent: string;
}

const scheme = matchMedia("(prefers-color-scheme: dark)");

export function palette(): Palette {
  return scheme.matches
    ? { dark: true, ground: "#1a222b", grid: "#2c3743", text: "#e4eaf0", quiet: "#93a1b0", accent: "#ffd166" }
    : { dark: false, ground: "#eef1f4", grid: "#d5dce3", text: "#17212b", quiet: "#5b6875", accent: "#b3261e" };
}

export function onSchemeChange(changed: () => void): void {
  scheme.addEventListener("change", changed);
}

const cache = new Map<number, string>();
onSchemeChange(() => cache.clear());

/** Neighbours are far apart: each is turned by the golden angle, and steps in lightness. */
export function jobColour(job: number): string {
  const known = cache.get(job);
  if (known) return known;
  const hue = (job * 137.508 + 20) % 360;
  const colour = `hsl(${hue.toFixed(0)} 52% ${lightness(job)}%)`;
  if (cache.size > 5000) cache.clear();
  cache.set(job, colour);
  return colour;
}

/** The colour of letters on that of a job. */
export function jobInk(job: number): string {
  return lightness(job) > 50 ? "#0b0f14" : "#fff";
}

function lightness(job: number): number {
  return (scheme.matches ? 48 : 42) + 9 * (job % 3);
}
