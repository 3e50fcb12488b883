// The messages of the server. The other side is crates/view/src/web/wire.rs.
//
// Points in time are microseconds since the Unix epoch, which a number holds exactly; lists of CPUs
// are texts such as "0-3,8". A figure that was not measured is absent.

export type Class = "express" | "interactive" | "batch" | "standby";
/** In order of priority. */
export const CLASSES: Class[] = ["express", "interactive", "batch", "standby"];
export type State =
  | "starting"
  | "waiting"
  | "running"
  | "sleeping"
  | "idle"
  | "suspended"
  | "not_scheduled"
  | "too_many_threads"
  | "too_few_cpus";
/** Those of jobs that want CPUs and get them. */
export const ACTIVE: State[] = ["running", "waiting", "not_scheduled"];

/** Once, at the beginning of a stream. */
export interface Hello {
  version: string;
  host: string;
  user: string;
  uid: number;
  read_only: boolean;
}

export interface Phase {
  p50_us: number;
  p99_us: number;
  max_us: number;
}

export interface Supply {
  total: number;
  free: number;
  promised: number;
}

export interface Status {
  version: string;
  uptime_s: number;
  backend: string;
  guarantee: string;
  /** Why a stronger backend is not used. */
  obstacle?: string;
  slice_us: number;
  gap_us: number;
  gap_period_us: number;
  fill: boolean;
  cap: number;
  cpus: number;
  unregistered_threads: number;
  load_average: number;
  /** Older daemons do not tell of plans. */
  switches: { count: number; late: Phase; lower: Phase; raise: Phase; skew: Phase; late_plans: number | null; ran_out: number | null };
  measuring: "yes" | "starting" | "no";
  not_measured?: string;
  working_hours?: boolean;
  /** Absent: express comes before all others. */
  express_weight?: number;
  interactive_weight: number;
  batch_weight: number;
  memory: Supply;
  disk: Supply;
}

export interface Job {
  id: number;
  name: string;
  owner: string;
  uid: number;
  class: Class;
  policy: string;
  state: State;
  weight: number;
  cpus: number;
  min_cpus: number;
  cpu_list: string;
  processes: number;
  threads: number;
  share_wanted: number;
  share_had: number;
  coscheduled?: number;
  skew_us_p99?: number;
  not_measured?: string;
  /** CPUs that it used over the last seconds, and the share of that out of its slots. */
  cpus_used?: number;
  filling?: number;
  /** How many of its threads waited for a CPU, in slot and out of slot. */
  lost?: number;
  waiting?: number;
  mem_bytes?: number;
  mem_used_bytes?: number;
  mem_enforced: boolean;
  disk_bytes?: number;
  /** What its program says it has done, of how much, and when it said so. */
  progress?: [done: number, total: number, at_us: number];
  registered_us: number;
  slots: number;
  in_slot_s: number;
  cpu_time_s: number;
}

/** slice, begin and end, whether it is a turn of the rest, who has which CPUs, and the gaps if there are any. */
export type WireRow = [
  slice: number,
  start_us: number,
  end_us: number,
  rest_turn: 0 | 1,
  slots: [job: number, cpus: string][],
  gap: [length_us: number, period_us: number] | null,
];

/** How things stand; many times a second. */
export interface Frame {
  at_us: number;
  /** Absent where they are as before. */
  status?: Status;
  jobs?: Job[];
  /** In order: those that have ended since, and then those to come, in place of what was to come before. */
  rows: WireRow[];
  /** How many of the rows have ended. */
  ended: number;
}

/** There is nothing to see, and why. */
export interface Gone {
  at_us: number;
  code: string;
  message: string;
}

export interface Process {
  pid: number;
  threads: number;
  command: string;
}

export interface Culprit {
  name: string;
  pid: number;
  class: string;
  ns: number;
}

export interface Details {
  /** Why it is as fast or as slow as it is, in plain words. */
  why?: string;
  processes?: Process[];
  cgroup?: string;
  lost_to?: Culprit[];
}

/** Columns, one value for each second that was looked at; null where it was not measured. */
export interface Past {
  at_s: number[];
  share_had: (number | null)[];
  share_wanted: (number | null)[];
  coscheduled: (number | null)[];
  skew_us_p99: (number | null)[];
  cpus_used: (number | null)[];
  filling: (number | null)[];
}

export interface EndedJob {
  id: number;
  name: string;
  owner: string;
  class: Class;
  cpus: number;
  registered_us: number;
  ended_us: number;
  slots: number;
  in_slot_s: number;
  cpu_time_s: number;
}

export interface Problem {
  error: { code: string; message: string };
}
