// The state of the machine: the last frame, and the rows of the last seconds. Its clock counts
// microseconds, of which a number holds fractions.

import { Cluster } from "./cluster.js";
import { amount, has, highest, ranges, type Ranges } from "./cpus.js";
import type { Frame, Job, Status } from "./wire.js";

export interface Slot {
  job: number;
  cpus: Ranges;
}

/** No gang is raised at the end of each period. */
export interface Gap {
  length_us: number;
  period_us: number;
}

export interface Row {
  slice: number;
  start_us: number;
  end_us: number;
  restTurn: boolean;
  slots: Slot[];
  gap: Gap | undefined;
}

/** Most rows that are kept, where slices are short. */
const ROWS_MAX = 12_000;

export class Machine {
  status: Status | undefined;
  jobs = new Map<number, Job>();
  /** Where the daemon is in one. */
  cluster: Cluster | undefined;
  /** In order, without two of one slice. */
  rows: Row[] = [];
  /** How much of the past is kept. */
  kept_us = 0;
  /** Grows with each frame. */
  version = 0;
  /** How many of the rows have ended; the others may still be taken back. */
  private ended = 0;
  private cpusSeen = 0;
  private ahead_us = -Infinity;

  take(frame: Frame, begins: boolean): void {
    if (frame.status) this.status = frame.status;
    if (frame.cluster) this.cluster = new Cluster(frame.cluster);
    else if (begins) this.cluster = undefined;
    if (frame.jobs) this.jobs = new Map(frame.jobs.map((job) => [job.id, job]));
    // A message takes time on its way, never a negative one. The fastest message is nearest to the
    // truth.
    const at_us = frame.at_ns / 1000;
    const ahead = at_us - performance.now() * 1000;
    if (begins || Math.abs(ahead - this.ahead_us) > 1e6) this.ahead_us = ahead;
    this.ahead_us = Math.max(this.ahead_us, ahead);
    if (begins) {
      this.rows = [];
      this.ended = 0;
      this.cpusSeen = 0;
    }
    // A clock that is set back has slices come again.
    const first = frame.rows[0]?.[0] ?? Infinity;
    let kept = Math.min(this.rows.length, this.ended);
    while (kept > 0 && this.rows[kept - 1]!.slice >= first) kept--;
    this.rows.length = kept;
    this.ended = kept + frame.ended;
    for (const [slice, start_ns, end_ns, rest, slots, gaps] of frame.rows) {
      const gap = gaps ? { length_us: gaps[0] / 1000, period_us: gaps[1] / 1000 } : undefined;
      const row = { slice, start_us: start_ns / 1000, end_us: end_ns / 1000, restTurn: rest === 1, slots: [] as Slot[], gap };
      for (const [job, list] of slots) {
        const cpus = ranges(list);
        this.cpusSeen = Math.max(this.cpusSeen, highest(cpus) + 1);
        row.slots.push({ job, cpus });
      }
      this.rows.push(row);
    }
    const old = at_us - this.kept_us;
    let drop = Math.max(0, this.rows.length - ROWS_MAX);
    while (drop < this.rows.length && this.rows[drop]!.end_us < old) drop++;
    // In large steps: each moves the whole array.
    if (drop > 256 || drop > this.rows.length / 2) {
      this.rows.splice(0, drop);
      this.ended = Math.max(0, this.ended - drop);
    }
    this.version++;
  }

  /** The server's clock. */
  now_us(): number {
    return performance.now() * 1000 + this.ahead_us;
  }

  /** Columns of a picture: numbers of CPUs may have holes. */
  columns(): number {
    return Math.max(1, this.status?.cpus ?? 1, this.cpusSeen);
  }

  /** The index of the row at a moment, or of the first after it. */
  indexAt(us: number): number {
    let [low, high] = [0, this.rows.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.rows[middle]!.end_us <= us) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  rowAt(us: number): Row | undefined {
    const row = this.rows[this.indexAt(us)];
    return row && row.start_us <= us ? row : undefined;
  }

  /** Share of the CPUs' time between two moments that each job has in the plan, falling. */
  shares(from_us: number, until_us: number): [job: number, share: number][] {
    const had = new Map<number, number>();
    let whole = 0;
    for (let at = this.indexAt(from_us); at < this.rows.length; at++) {
      const row = this.rows[at]!;
      if (row.start_us >= until_us) break;
      const length = Math.min(row.end_us, until_us) - Math.max(row.start_us, from_us);
      whole += length * this.columns();
      for (const slot of row.slots) {
        had.set(slot.job, (had.get(slot.job) ?? 0) + length * amount(slot.cpus));
      }
    }
    const sorted = [...had].sort((a, b) => b[1] - a[1]);
    return sorted.map(([job, time]) => [job, whole ? time / whole : 0]);
  }
}

export function jobOn(row: Row, cpu: number): number | undefined {
  return row.slots.find((slot) => has(slot.cpus, cpu))?.job;
}
