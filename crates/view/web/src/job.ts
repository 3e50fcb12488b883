// The page of one job.

import * as actions from "./actions.js";
import { Charts } from "./charts.js";
import { element, Figures, say } from "./dom.js";
import type { Machine } from "./machine.js";
import { details, past, Refused } from "./server.js";
import { duration, helpOf, moment, percent, printable, titleOf, valueOf } from "./text.js";
import { CLASSES, type Class, type Details, type Figure, type Hello, type Job, type Past, type SpanningJob } from "./wire.js";

const ASK_MS = 1000;

export class JobPage {
  readonly section: HTMLElement;
  private readonly title = element("h2", { id: "job-title", tabindex: -1 });
  private readonly state = element("p", { role: "status" });
  private readonly figures = new Figures();
  private readonly shown: Figure[];
  private readonly charts: Charts;
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
  /** The page says that there is no such job, or no more. */
  private isOver = false;
  /** It spans other hosts than this one. */
  private isElsewhere = false;

  constructor(private readonly machine: Machine, private readonly id: number, hello: Hello) {
    this.isReadOnly = hello.read_only;
    // The title and the line below it say these.
    this.shown = hello.figures.filter(({ name }) => !["id", "name", "state"].includes(name));
    this.charts = new Charts(hello.figures);
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
      element("button", { type: "button", onclick: on((job) => actions.resize(job, hello.limits)) }, "Resize …"),
      element("button", { type: "button", class: "grave", onclick: on(actions.kill) }, "Kill …"),
    );
    const note = hello.read_only ? element("p", { class: "quiet" }, "This server only shows: it was started with --read-only.") : null;
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
      element("section", {}, element("h2", {}, "Processes it waited for in its slots"), table("List of processes it waited for", ["Process", "PID", "Scheduled as", "Time"], this.lost), this.lostNone),
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
    const spanning = this.machine.cluster?.job(this.id);
    if (!job && spanning) {
      this.showElsewhere(spanning);
      return;
    }
    this.isElsewhere = false;
    if (!job) {
      this.ended();
      return;
    }
    if (this.isOver) {
      // The daemon was away, and found it again.
      this.isOver = false;
      this.group.disabled = this.isReadOnly;
    }
    if (job.class !== this.job?.class) this.classes.value = job.class;
    this.job = job;
    say(this.title, `Job ${job.id}: ${printable(job.name)}`);
    say(this.state, `${stateInWords(job)} Class ${job.class}.`);
    say(this.pauseButton, job.state === "suspended" ? "Resume" : "Suspend");
    const { figures } = this;
    for (const figure of this.shown) {
      const isMissing = job[figure.name] === undefined && figure.measured;
      figures.set(titleOf(figure), valueOf(figure, job), (isMissing && job.not_measured) || helpOf(figure));
    }
    if (job.not_measured) figures.set("Not measured", printable(job.not_measured));
  }

  /** A job that has no part on this host: the registry has less of it. */
  private showElsewhere(job: SpanningJob): void {
    this.job = undefined;
    this.isElsewhere = this.isOver = true;
    this.group.disabled = true;
    say(this.title, `Job ${job.id}: ${printable(job.name)}`);
    say(this.state, `It spans other hosts than this one: ${printable(job.state)}. Class ${job.class}.`);
    const { figures } = this;
    figures.set("Owner", printable(job.owner));
    figures.set("Hosts", printable(job.hosts), "CPUs of the job by host");
    figures.set("Share wanted", job.share === null ? "–" : percent(job.share), "The part of the frame's rows that it has");
    figures.set("Registered", moment(job.registered_at_ns));
  }

  private ended(): void {
    if (this.machine.version === 0 || this.isOver) return;
    this.isOver = true;
    say(this.title, this.job ? `Job ${this.id}: ${printable(this.job.name)}` : `Job ${this.id}`);
    say(this.state, this.job ? "It has ended." : "There is no such job now. Those that have ended are listed on the first page.");
    this.group.disabled = true;
    this.job = undefined;
  }

  private async keepAsking(): Promise<void> {
    while (!this.isClosed) {
      if (!document.hidden && (this.job || this.isElsewhere || this.machine.version === 0)) await this.askOnce();
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
    say(this.why, printable(found.why));
    if (before.at_s.length > 1) this.charts.show(before);
    fill(this.processes, (found.processes ?? []).map((p) => [String(p.pid), String(p.threads), printable(p.command)]));
    say(this.hidden, found.processes ? "" : "Only its owner and administrators see the processes.");
    const lost = found.lost_to ?? [];
    fill(this.lost, lost.map((c) => [printable(c.name), String(c.pid), c.sched_policy, duration(c.ns)]));
    say(this.lostNone, lost.length ? "" : "For none, as far as it was measured.");
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
      return job.unplaceable
        ? `No slot can be made for it: ${job.unplaceable}. Linux alone schedules it.`
        : "It needs more CPUs than are online, and waits for them.";
  }
}
