// The cluster that the daemon is in: columns by host, and the entries of jobs that span hosts.

import { has, ranges, type Ranges } from "./cpus.js";
import type { SpanningJob, WireCluster } from "./wire.js";

export interface ClusterHost {
  name: string;
  /** The first of its columns in the matrix, and how many there are. */
  first: number;
  cpus: number;
  isAlive: boolean;
  /** In a few words. */
  state: string;
}

export interface Entry {
  job: SpanningJob;
  rows: Ranges;
  /** Its CPUs, by the place of the host in the list of hosts. */
  cpus: Map<number, Ranges>;
}

export class Cluster {
  readonly hosts: ClusterHost[] = [];
  readonly entries: Entry[];
  /** The CPUs of all hosts. */
  readonly columns: number;
  private readonly jobs: Map<number, SpanningJob>;

  constructor(readonly said: WireCluster) {
    let columns = 0;
    const places = new Map<string, number>();
    for (const { name, cpus, is_alive, state } of said.hosts) {
      places.set(name, this.hosts.length);
      this.hosts.push({ name, first: columns, cpus, isAlive: is_alive, state });
      columns += cpus;
    }
    this.columns = columns;
    this.jobs = new Map(said.jobs.map((job) => [job.id, job]));
    this.entries = said.jobs.map((job) => {
      const cpus = new Map<number, Ranges>();
      for (const [host, list] of job.columns) {
        const place = places.get(host);
        if (place !== undefined) cpus.set(place, ranges(list));
      }
      return { job, rows: ranges(job.rows), cpus };
    });
  }

  job(id: number): SpanningJob | undefined {
    return this.jobs.get(id);
  }

  alive(): number {
    return this.hosts.filter((host) => host.isAlive).length;
  }

  /** The place of the host that has a column. */
  hostAt(column: number): number {
    let [low, high] = [0, this.hosts.length];
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (this.hosts[middle]!.first <= column) low = middle;
      else high = middle;
    }
    return low;
  }

  /** The entries of a row. */
  inRow(row: number): Entry[] {
    return this.entries.filter(({ rows }) => has(rows, row));
  }

  /** The job that has a CPU of a host in a row. */
  jobAt(host: number, cpu: number, row: number): SpanningJob | undefined {
    const isThere = ({ rows, cpus }: Entry) => has(rows, row) && has(cpus.get(host) ?? [], cpu);
    return this.entries.find(isThere)?.job;
  }
}
