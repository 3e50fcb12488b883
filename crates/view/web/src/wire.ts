// The messages of the server. The other side is crates/view/src/web/wire.rs.
//
// Names and units are those of the interface file: times are nanoseconds, points in time count from
// the Unix epoch. Lists of CPUs are texts such as "0-3,8".

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

export type Unit =
  | "text"
  | "class"
  | "state"
  | "count"
  | "mean"
  | "share"
  | "percent"
  | "ns"
  | "moment"
  | "bytes";

/** The definition of a figure of a job. */
export interface Figure {
  name: string;
  title: string;
  unit: Unit;
  help: string;
  /** It is a column; those of the greatest rank are left out first where the page is narrow. */
  rank?: number;
  /** A table that is sorted by it begins with the least. */
  ascending: boolean;
  /** A job's not_measured says why it is absent. */
  measured: boolean;
  /** A smaller value is marked. */
  least: number | null;
}

export interface Limits {
  cpus_max: number;
  weight_min: number;
  weight_max: number;
  /** How much of the past the server sends at first. */
  past_ns: number;
}

/** Once, at the beginning of a stream. */
export interface Hello {
  version: string;
  host: string;
  user: string;
  read_only: boolean;
  /** In the order in which they are shown. */
  figures: Figure[];
  limits: Limits;
}

export interface Phase {
  p50_ns: number;
  p99_ns: number;
  max_ns: number;
}

/** How much of their turns gangs are whole. */
export interface WholeTime {
  share: number;
  /** Null where more than a tenth is left out. */
  steady_share: number | null;
  left_out: number;
}

export interface Supply {
  total: number;
  free: number;
  promised: number;
}

export interface Status {
  version: string;
  uptime_ns: number;
  backend: string;
  guarantee: string;
  /** Why a stronger backend is not used. */
  obstacle: string | null;
  slice_ns: number;
  gap_ns: number;
  gap_period_ns: number;
  gang_share_max: number;
  cpus: number;
  unregistered_threads: number;
  load_average: number;
  switches: { count: number; late: Phase; skew: Phase; late_plans: number; ran_out: number };
  measuring: "yes" | "starting" | "no";
  not_measured: string | null;
  /** Of all gangs; null while none asked for all CPUs of its row. */
  whole: WholeTime | null;
  working_hours: boolean | null;
  /** Absent: express comes before all others. */
  express_weight: number | null;
  interactive_weight: number;
  batch_weight: number;
  memory: Supply;
}

/** The figures of a job by their names; one without a value is absent. */
export interface Job {
  id: number;
  name: string;
  owner: string;
  class: Class;
  state: State;
  cpus: number;
  min_cpus: number;
  weight: number;
  share_had: number;
  memory_promised_bytes?: number;
  not_measured?: string;
  unplaceable?: string;
  [figure: string]: number | string | undefined;
}

/** The last is null where there are no gaps. */
export type WireRow = [
  slice: number,
  start_ns: number,
  end_ns: number,
  rest_turn: 0 | 1,
  slots: [job: number, cpus: string][],
  gap: [length_ns: number, period_ns: number] | null,
];

/** A job that spans hosts. */
export interface SpanningJob {
  id: number;
  name: string;
  owner: string;
  class: Class;
  /** In a few words. */
  state: string;
  /** Its CPUs by host: "a:4,b:4". */
  hosts: string;
  share: number | null;
  /** A list; empty while it has no entries. */
  rows: string;
  /** Hosts, each with the CPUs of it that the job has in its rows, as a list. */
  columns: [host: string, cpus: string][];
  registered_at_ns: number;
}

export interface WireCluster {
  name: string;
  /** The name of the daemon's host in it. */
  host: string;
  /** Why etcd cannot be reached. */
  unreachable: string | null;
  slice_ns: number | null;
  /** Rows of a frame. */
  frame: number | null;
  hosts: { name: string; cpus: number; is_alive: boolean; state: string }[];
  jobs: SpanningJob[];
}

/** How things stand; many times a second. */
export interface Frame {
  at_ns: number;
  /** Absent where they are as before. */
  status?: Status;
  jobs?: Job[];
  /** At the beginning, absent also where the daemon is in none. */
  cluster?: WireCluster;
  /** In order: those that have ended since, then those to come, which replace those before. */
  rows: WireRow[];
  /** How many of the rows have ended. */
  ended: number;
}

/** There is nothing to see, and why. */
export interface Gone {
  at_ns: number;
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
  sched_policy: string;
  ns: number;
}

export interface Details {
  /** Why it is as fast or as slow as it is, in plain words. */
  why: string;
  processes: Process[] | null;
  lost_to: Culprit[] | null;
}

/** Columns, those of figures by their names, with a value for each look; null: not measured. */
export interface Past {
  at_s: number[];
  [figure: string]: (number | null)[];
}

export interface EndedJob {
  id: number;
  name: string;
  owner: string;
  class: Class;
  cpus: number;
  registered_at_ns: number;
  ended_at_ns: number;
  in_slot_ns: number;
  cpu_time_ns: number;
}

export interface Problem {
  error: { code: string; message: string };
}
