// The first page: the machine, the two pictures, the jobs, and on demand those that have ended.

import { element, Figures } from "./dom.js";
import { Jobs } from "./jobs.js";
import type { Machine } from "./machine.js";
import { Matrix } from "./matrix.js";
import { history, Refused } from "./server.js";
import { bytes, duration, moment, percent, plural, printable } from "./text.js";
import { Timeline } from "./timeline.js";
import { ACTIVE, CLASSES, type Figure, type Hello, type Job } from "./wire.js";

const GUARANTEES: Record<string, string> = {
  exclusive: "nothing ordinary runs in the place of a gang",
  preferred: "a gang gets nearly all of its CPUs",
  paused: "the other gangs stand still, the rest of the machine does not",
};

export class Overview {
  readonly section: HTMLElement;
  private readonly figures = new Figures();
  private readonly matrix: Matrix;
  private readonly timeline: Timeline;
  private readonly jobs: Jobs;

  constructor(private readonly machine: Machine, hello: Hello) {
    this.matrix = new Matrix(machine);
    this.timeline = new Timeline(machine);
    // A host alone has no jobs that span hosts.
    const isShown = ({ name }: Figure) => name !== "hosts" || machine.cluster !== undefined;
    this.jobs = new Jobs(machine, hello.figures.filter(isShown));
    this.section = element(
      "div",
      { class: "overview" },
      element("section", { class: "machine", "aria-label": "Machine" }, this.figures.list),
      element("div", { class: "pictures" }, this.matrix.section, this.timeline.section),
      this.jobs.section,
      ended(),
    );
  }

  close(): void {
    this.matrix.close();
    this.timeline.close();
    this.jobs.close();
  }

  renew(): void {
    this.jobs.renew();
    const { status } = this.machine;
    if (!status) return;
    const { figures } = this;
    const jobs = [...this.machine.jobs.values()];
    const active = jobs.filter((job) => ACTIVE.includes(job.state)).length;
    figures.set("CPUs", `${status.cpus}, load ${status.load_average.toFixed(2)}`);
    figures.set("Jobs", `${jobs.length}, of them ${active} take turns`);
    figures.set("Backend", `${status.backend}, ${status.guarantee}`, `${GUARANTEES[status.guarantee] ?? ""}${status.obstacle ? `; a stronger one is not used: ${status.obstacle}` : ""}`);
    figures.set("Slice", `${duration(status.slice_ns)}, gap ${duration(status.gap_ns)} in ${duration(status.gap_period_ns)}`);
    const express = status.express_weight === null ? "" : `express ${status.express_weight} %, `;
    figures.set("Classes", `${express}interactive ${status.interactive_weight} %, batch ${status.batch_weight} %`, status.working_hours === null ? "at all hours" : status.working_hours ? "in working hours" : "outside working hours");
    figures.set("Had by classes", byClass(jobs, status.cpus), "What the jobs of each class had of all CPUs over the last ten seconds");
    figures.set("Others", `${plural(status.unregistered_threads, "thread")} outside all jobs`, `All gangs together may take ${percent(status.gang_share_max)}`);
    figures.set("Memory", `${bytes(status.memory.free)} free`, `of ${bytes(status.memory.total)}; ${bytes(status.memory.promised)} of it promised`);
    const { late, skew, late_plans, ran_out } = status.switches;
    figures.set("Switches", `late ${duration(late.p99_ns)}, skew ${duration(skew.p99_ns)}`, `99 of 100 of the last 1,024; ${status.switches.count} in all`);
    figures.set("Plans", `${late_plans} late, ${ran_out} ran out`, "Plans that came after their beginning, and those that no other followed in time, since the daemon began; neither is to happen");
    const measuring = { yes: "yes", starting: "begins", no: "no" }[status.measuring] ?? status.measuring;
    figures.set("Measures", measuring, status.not_measured ? printable(status.not_measured) : "How far gangs are coscheduled, by BPF");
    const { whole } = status;
    if (whole) {
      const steady = whole.steady_share === null ? "not told on a steady host" : `${percent(whole.steady_share)} on a steady host`;
      figures.set("Whole", percent(whole.share), `Of the time that gangs asked for their rows; ${steady}, which leaves out ${percent(whole.left_out)}`);
    }
    figures.set("Daemon", `up ${duration(status.uptime_ns)}`, `version ${status.version}`);
  }
}

/** The shares of all CPUs that the jobs of each class had, in order of priority. */
function byClass(jobs: Job[], cpus: number): string {
  const parts = CLASSES.flatMap((name) => {
    const its = jobs.filter((job) => job.class === name);
    const had = its.reduce((sum, job) => sum + (job.share_had * job.cpus) / cpus, 0);
    return its.length ? [`${name} ${percent(had)} (${plural(its.length, "job")})`] : [];
  });
  return parts.join(", ") || "no job";
}

/** The jobs that have ended, asked for when they are wanted. */
function ended(): HTMLElement {
  const place = element("div");
  const box = element("details", { class: "ended" }, element("summary", {}, "Jobs that have ended"), place);
  box.addEventListener("toggle", async () => {
    if (!box.open) return;
    place.replaceChildren(element("p", { class: "quiet" }, "Asking …"));
    try {
      const jobs = await history();
      place.replaceChildren(jobs.length ? table(jobs) : element("p", { class: "quiet" }, "None is on record. The machine's daemon keeps them; one that gang run has started keeps none."));
    } catch (error) {
      const why = error instanceof Refused ? error.message : "the server does not answer";
      place.replaceChildren(element("p", { class: "trouble" }, printable(why)));
    }
  });
  return box;
}

function table(jobs: Awaited<ReturnType<typeof history>>): HTMLElement {
  const heads = ["Job", "Name", "Owner", "Class", "CPUs", "Began", "Ended", "In slots", "CPU time"];
  const line = (cells: string[]) => element("tr", {}, ...cells.map((cell) => element("td", {}, cell)));
  const rows = jobs.map((job) =>
    line([
      String(job.id),
      printable(job.name),
      printable(job.owner),
      job.class,
      String(job.cpus),
      moment(job.registered_at_ns),
      moment(job.ended_at_ns),
      duration(job.in_slot_ns),
      duration(job.cpu_time_ns),
    ]),
  );
  return element(
    "div",
    { class: "scroll", role: "region", "aria-label": "List of jobs that have ended", tabindex: 0 },
    element("table", {}, element("thead", {}, element("tr", {}, ...heads.map((head) => element("th", { scope: "col" }, head)))), element("tbody", {}, ...rows)),
  );
}
