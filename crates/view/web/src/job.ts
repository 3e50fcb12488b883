// The page of one job.

import * as actions from "./actions.js";
import { Charts } from "./charts.js";
import { element, Figures, say } from "./dom.js";
import type { Machine } from "./machine.js";
import { details, past, Refused } from "./server.js";
import { bytes, count, doneOf, micros, moment, percent, printable, seconds } from "./text.js";
import { CLASSES, type Class, type Details, type Hello, type Job, type Past } from "./wire.js";

const ASK_MS = 1000;

export class JobPage {
  readonly section: HTMLElement;
  private readonly title = element("h2", { id: "job-title", tabindex: -1 });
  private readonly state = element("p", { role: "status" });
  private readonly figures = new Figures();
  private readonly charts = new Charts();
  private readonly why = element("p");
  private readonly processes = element("tbody");
  private readonly hidden = element("p", { class: "quiet" });
  private readonly lost = element("tbody");
  private readonly lostNone = element("p", { class: "quiet" });
  private readonly group: HTMLFieldSetElement;
  private readonly pauseButton: HTMLButtonElement;
  private readonly classes: HTMLSelectElement;
  private job: Job | undefined;
  private readonly isReadOnly: boolean;
  private isClosed = false;
  /** That there is no such job, or no more. */
  private isTold = false;

  constructor(private readonly machine: Machine, private readonly id: number, hello: Hello | undefined) {
    this.isReadOnly = hello?.read_only ?? true;
    const on = (act: (job: Job) => Promise<void>) => () => this.job && void act(this.job);
    this.pauseButton = element("button", { type: "button", onclick: on((job) => this.pause(job)) }, "Suspend");
    this.classes = element(
      "select",
      { id: "class", "aria-label": "Class" },
      ...CLASSES.map((name) => element("option", { value: name }, name)),
    );
    this.group = element(
      "fieldset",
      { class: "actions", disabled: this.isReadOnly },
      element("legend", {}, "What you can do"),
      this.pauseButton,
      element("span", { class: "pair" }, this.classes, element("button", { type: "button", onclick: on((job) => this.reclass(job)) }, "Change class")),
      element("button", { type: "button", onclick: on(actions.resize) }, "Resize …"),
      element("button", { type: "button", class: "grave", onclick: on(actions.kill) }, "Kill …"),
    );
    const note = hello?.read_only ? element("p", { class: "quiet" }, "This server only shows: it was started with --read-only.") : null;
    const table = (label: string, heads: string[], body: HTMLElement) =>
      element(
        "div",
        { class: "scroll", role: "region", "aria-label": label, tabindex: 0 },
        element("table", {}, element("thead", {}, element("tr", {}, ...heads.map((head) => element("th", { scope: "col" }, head)))), body),
      );
    this.section = element(
      "div",
      { class: "job" },
      element("p", {}, element("a", { href: "#/" }, "← All jobs")),
      this.title,
      this.state,
      this.group,
      note,
      this.figures.list,
      element("section", {}, element("h2", {}, "Why it is as fast or as slow as it is"), this.why),
      this.charts.section,
      element("section", {}, element("h2", {}, "Whom it waited for in its slots"), table("List of those it waited for", ["Process", "PID", "Class", "Time"], this.lost), this.lostNone),
      element("section", {}, element("h2", {}, "Processes"), table("List of processes", ["PID", "Threads", "Command"], this.processes), this.hidden),
    );
    void this.keepAsking();
  }

  close(): void {
    this.isClosed = true;
    this.charts.close();
  }

  private async pause(job: Job): Promise<void> {
    await (job.state === "suspended" ? actions.resume(job) : actions.suspend(job));
  }

  private async reclass(job: Job): Promise<void> {
    await actions.setClass(job, this.classes.value as Class);
  }

  renew(): void {
    const job = this.machine.jobs.get(this.id);
    if (!job) {
      this.ended();
      return;
    }
    if (this.isTold) {
      // The daemon was away, and found it again.
      this.isTold = false;
      this.group.disabled = this.isReadOnly;
    }
    if (job.class !== this.job?.class) this.classes.value = job.class;
    this.job = job;
    say(this.title, `Job ${job.id}: ${printable(job.name)}`);
    say(this.state, `${stateInWords(job)} Class ${job.class}.`);
    say(this.pauseButton, job.state === "suspended" ? "Resume" : "Suspend");
    const { figures } = this;
    figures.set("Owner", printable(job.owner));
    figures.set("CPUs", `${job.cpus}${job.min_cpus < job.cpus ? `, at least ${job.min_cpus}` : ""}`, `has, or had last: ${job.cpu_list}`);
    figures.set("Share had", percent(job.share_had), "Share of time in a slot over the last ten seconds");
    figures.set("Share wanted", percent(job.share_wanted), "What its weight gives it now");
    figures.set("Weight", `${job.weight}, ${job.policy}`);
    figures.set("Together", percent(job.coscheduled), job.not_measured ?? "Share of its slots in which all of its runnable threads were on CPUs");
    figures.set("Skew p99", micros(job.skew_us_p99));
    figures.set("CPUs used", count(job.cpus_used, 2));
    figures.set("Filling", percent(job.filling), "Share of its CPU time out of its slots, in holes that others left");
    figures.set("Waiting in slot", job.lost === undefined ? "–" : `${count(job.lost, 2)} threads`, "How many of its threads, on average, waited for a CPU in its slots");
    figures.set("Waiting out of slot", job.waiting === undefined ? "–" : `${count(job.waiting, 2)} threads`, "How many of its threads, on average, waited for a CPU while the slots were others'");
    figures.set("Memory", job.mem_bytes === undefined ? "asked for none" : `${bytes(job.mem_used_bytes)} of ${bytes(job.mem_bytes)}${job.mem_enforced ? ", enforced" : ""}`);
    figures.set("Threads", `${job.threads} in ${job.processes} ${job.processes === 1 ? "process" : "processes"}`);
    if (job.progress) {
      const [done, total, at_us] = job.progress;
      figures.set("Done", `${percent(doneOf(job))}, ${done} of ${total}`, `as its program said at ${moment(at_us)}`);
    }
    figures.set("Slots", `${job.slots}, ${seconds(job.in_slot_s)} in all`);
    figures.set("CPU time", seconds(job.cpu_time_s));
    figures.set("Since", moment(job.registered_us));
    if (job.not_measured) figures.set("Not measured", printable(job.not_measured));
  }

  private ended(): void {
    if (this.machine.version === 0 || this.isTold) return;
    this.isTold = true;
    say(this.title, this.job ? `Job ${this.id}: ${printable(this.job.name)}` : `Job ${this.id}`);
    say(this.state, this.job ? "It has ended." : "There is no such job now. Those that have ended are listed on the first page.");
    this.group.disabled = true;
    this.job = undefined;
  }

  private async keepAsking(): Promise<void> {
    while (!this.isClosed) {
      if (!document.hidden && (this.job || this.machine.version === 0)) await this.askOnce();
      await new Promise((resolve) => setTimeout(resolve, ASK_MS));
    }
  }

  private async askOnce(): Promise<void> {
    try {
      const [found, before] = await Promise.all([details(this.id), past(this.id)]);
      if (!this.isClosed) this.showDetails(found, before);
    } catch (error) {
      // That the daemon or the server is gone, the banner says.
      if (error instanceof Refused && error.status === 404) this.renew();
    }
  }

  private showDetails(found: Details, before: Past): void {
    say(this.why, printable(found.why ?? "Not known yet."));
    if (before.at_s.length > 1) this.charts.show(before);
    fill(this.processes, (found.processes ?? []).map((p) => [String(p.pid), String(p.threads), printable(p.command)]));
    say(this.hidden, found.processes ? "" : "Only its owner and administrators see the processes.");
    const lost = found.lost_to ?? [];
    fill(this.lost, lost.map((c) => [printable(c.name), String(c.pid), c.class, seconds(c.ns / 1e9)]));
    say(this.lostNone, lost.length ? "" : "For nobody, as far as it was measured.");
  }
}

function fill(body: HTMLElement, rows: string[][]): void {
  while (body.children.length > rows.length) body.lastElementChild!.remove();
  rows.forEach((cells, at) => {
    const row = body.children[at] ?? body.appendChild(element("tr", {}, ...cells.map(() => element("td"))));
    cells.forEach((text, column) => say(row.children[column]!, text));
  });
}

function stateInWords(job: Job): string {
  switch (job.state) {
    case "starting":
      return "It has no process yet.";
    case "running":
    case "waiting":
      return "It runs, in turn with the others.";
    case "sleeping":
      return "It uses no CPU, and has no slots until it does.";
    case "idle":
      return "It has used no CPU for long.";
    case "suspended":
      return "It is suspended until it is resumed.";
    case "not_scheduled":
      return "Its policy is none: Linux alone schedules it.";
    case "too_many_threads":
      return "It has more threads than are switched, and no slots until it has fewer.";
    case "too_few_cpus":
      return "It needs more CPUs than are online, and waits for them.";
  }
}
