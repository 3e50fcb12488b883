// A daemon that schedules nothing: any number of jobs on any number of CPUs, for figures. With
// `hosts` it is the first of so many hosts of a cluster, and has a part of the first job that spans
// hosts.

import { createServer } from "node:net";

export const FIRST_SPANNING = 1_000_000_000;

/** The frame and the slices of a cluster. */
export const FRAME = 64;
export const CLUSTER_SLICE_NS = 20_000_000;

/** Jobs of eight hosts, a quarter of the rows each, so that all of the matrix is theirs. The second
 * host is away. */
function clusterOf(hosts, cpus, began) {
  const name = (at) => `node${at + 1}`;
  const all = (length, from = 0) => Array.from({ length }, (_, at) => from + at);
  const groups = Math.ceil(hosts / 8);
  const job = (at) => {
    const of = all(Math.min(8, hosts - 8 * (at % groups)), 8 * (at % groups));
    return {
      id: FIRST_SPANNING + at, name: `span-${at}`, owner: "ann", owner_uid: 1000, by_root: false, class: "batch", weight: 100,
      registrar: name(of[0]), cpus: of.map((host) => ({ host: name(host), cpus })), wanted: "run",
      rows: all(FRAME / 4, (FRAME / 4) * Math.floor(at / groups)),
      columns: of.map((host) => ({ host: name(host), columns: all(cpus) })), lost: [], awaited: [],
      registered_at_ns: began * 1e6,
    };
  };
  const host = (at) => ({
    name: name(at), cpus, is_this: at === 0, shares_kernel: at === 0, adjusts: at === 0, is_alive: at !== 1,
    ...(at === 1 ? {} : { clock: { source: "chrony", offset_ns: 0, bound_ns: 50_000 }, revision: 9, threads: 0, parts: [] }),
  });
  return {
    name: "lab", host: name(0), revision: 9, slice_ns: CLUSTER_SLICE_NS, frame: FRAME,
    hosts: all(hosts).map(host), jobs: all(4 * groups).map(job), faults: [],
  };
}

export function fake(socket, { cpus, jobs, slice_ns = 10_000_000, hosts = 0 }) {
  // Each row packs jobs of 1 to 32 CPUs side by side.
  const wide = (id) => 1 + ((id * 7) % Math.min(32, cpus));
  const rows = [];
  for (let id = 1; id <= jobs; ) {
    const slots = [];
    for (let at = 0; id <= jobs && at + wide(id) <= cpus; id++) {
      slots.push({ job: id, cpu_list: Array.from({ length: wide(id) }, (_, i) => at + i) });
      at += wide(id);
    }
    if (slots.length) rows.push(slots);
  }
  const phase = { p50_ns: 12_300, p99_ns: 45_600, max_ns: 789_000 };
  const supply = { total: 2 ** 38, free: 2 ** 37, promised: 2 ** 30 };
  const gap = { period_ns: 10_000_000, length_ns: 500_000 };
  const began = Date.now();
  const whole = (asked_ns) => {
    const part = (of) => Math.round(asked_ns * of);
    return {
      asked_ns: part(1), whole_ns: part(0.97), other_ns: part(0.005), split_ns: part(0.015), partly_ns: part(0.01),
      gap_ns: part(0.012), edge_ns: part(0.008), noise_ns: part(0.005), share: 0.975, steady_share: 0.98,
      left_out_ns: part(0.02), left_out: 0.02, left_out_whole_ns: part(0.0146),
    };
  };
  const status = () => ({
    version: "0.1.0", pid: 10, guardian_pid: 11, uptime_ns: (Date.now() - began) * 1e6, backend: "rt",
    guarantee: "exclusive", backends: [{ name: "rt", guarantee: "exclusive", usable: true }], slice_ns,
    gap_ns: gap.length_ns, gap_period_ns: gap.period_ns, fill: true, gang_share_max: 1, cpus, jobs, unregistered_threads: 3,
    switches: { count: 5000, late: phase, lower: phase, raise: phase, skew: phase, late_plans: 3, ran_out: 0 }, interactive_weight: 200,
    batch_weight: 100, shares: "equal", class_slices: [{ class: "batch", slice_ns: slice_ns }], memory: supply, disk: supply,
    load_average: cpus, measuring: "yes", whole: whole(1e9),
  });
  const job = (id) => {
    const ms = Date.now() - began;
    return {
      id, name: `solver-${id}`, owner_uid: id % 3 ? 0 : 65534, class: id % 4 ? "batch" : "interactive",
      policy: "gang", weight: 100, cpus: wide(id), min_cpus: wide(id), state: id % 2 ? "running" : "waiting",
      processes: 1, threads: wide(id), cpu_list: Array.from({ length: wide(id) }, (_, i) => i),
      share_wanted: 1 / rows.length, share_had: 1 / rows.length + Math.sin(ms / 3000 + id) * 0.01,
      registered_at_ns: began * 1e6, slots: Math.round(ms / 10), in_slot_ns: ms * 1e5, cpu_time_ns: ms * 1e5 * wide(id),
      uncontended: false, overhead: 0, signals: false,
      measured: {
        coscheduled: 0.97 + 0.03 * Math.sin(ms / 5000 + id), skew_ns_p99: 80_000 + id * 1000,
        lost_ns: ms * 1e3, filled_ns: ms * 2e3, waiting_ns: ms * 9e5, slot_ns: ms * 1e5,
        gave_way: Math.round(ms / 100), gave_way_ns: ms * 1e4, whole: whole(ms * 1e5),
      },
    };
  };
  const frame = (since) => {
    const now = Math.floor((Date.now() * 1e6) / slice_ns);
    const first = since === undefined ? now : Math.max(now - 2048, Math.floor(since / slice_ns));
    const answer = [];
    for (let slice = first; slice < now + 25; slice++) {
      const slots = rows[slice % rows.length];
      answer.push({ slice, start_ns: slice * slice_ns, end_ns: (slice + 1) * slice_ns, slots, rest_cpus: 0, rest_turn: false, gap });
    }
    return answer;
  };
  const ids = Array.from({ length: jobs }, (_, at) => at + 1);
  const cluster = hosts ? clusterOf(hosts, cpus, began) : undefined;
  if (cluster) ids.push(FIRST_SPANNING);
  const reply = (method, of = {}) => {
    switch (method) {
      case "GetStatus": return { parameters: { status: status() } };
      case "ListJobs": return { parameters: { jobs: ids.map(job) } };
      case "GetCluster": return { parameters: cluster ? { cluster } : {} };
      case "GetFrame": return { parameters: { rows: frame(of.since_ns ?? undefined) } };
      case "ShowJob":
        if (!ids.includes(of.job)) return { error: "org.gangd.v1.NoSuchJob", parameters: { job: of.job } };
        return { parameters: { details: job(of.job), processes: [{ pid: 100, threads: 2, command: "./solver" }] } };
      default: return { error: "org.varlink.service.MethodNotFound", parameters: { method } };
    }
  };
  const server = createServer((connection) => {
    let rest = "";
    connection.on("data", (data) => {
      const messages = (rest + data).split("\0");
      rest = messages.pop();
      for (const message of messages) {
        const { method, parameters } = JSON.parse(message);
        connection.write(`${JSON.stringify(reply(method.split(".").pop(), parameters))}\0`);
      }
    });
    connection.on("error", () => connection.destroy());
  });
  return new Promise((resolve) => server.listen(socket, () => resolve(server)));
}
