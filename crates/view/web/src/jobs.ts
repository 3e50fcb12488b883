// The list of jobs: a table that is sorted by its heads and filtered by a word.
//
// A change in a table lays out all of it, which takes half a frame with 200 jobs. So the visible
// lines are renewed each time, and some of the others, in turn.

import { jobColour } from "./colours.js";
import { element, say } from "./dom.js";
import type { Machine } from "./machine.js";
import { bytes, count, doneOf, micros, percent, plural, printable } from "./text.js";
import { ACTIVE, CLASSES, type Job } from "./wire.js";

interface Column {
  title: string;
  hint: string;
  /** Numbers stand right, and are sorted from the greatest. */
  isNumber: boolean;
  /** Left out where the page is narrow, first those of the greatest number. */
  rank: 0 | 1 | 2;
  key: (job: Job) => number | string;
  text: (job: Job) => string;
}

/** Below this share of its slots together, a gang is no gang. */
const TOGETHER_LEAST = 0.9;
const isApart = (job: Job) => job.coscheduled !== undefined && job.coscheduled < TOGETHER_LEAST;

/** How many of the lines that cannot be seen are renewed at a time. */
const UNSEEN_AT_A_TIME = 20;

const missing = (value: number | undefined) => value ?? -1;

const COLUMNS: Column[] = [
  { title: "Job", hint: "Number of the job", isNumber: true, rank: 0, key: (j) => j.id, text: (j) => String(j.id) },
  { title: "Name", hint: "Name of the job", isNumber: false, rank: 0, key: (j) => j.name, text: (j) => printable(j.name) },
  { title: "Owner", hint: "Whose it is", isNumber: false, rank: 2, key: (j) => j.owner, text: (j) => printable(j.owner) },
  { title: "Class", hint: "In order of priority: express, interactive, batch, standby", isNumber: false, rank: 1, key: (j) => CLASSES.indexOf(j.class), text: (j) => j.class },
  { title: "State", hint: "What it does: a job that runs does so in turn with the others", isNumber: false, rank: 0, key: (j) => j.state, text: (j) => (ACTIVE.includes(j.state) ? "runs" : j.state.replaceAll("_", " ")) },
  { title: "CPUs", hint: "CPUs that it gets at once", isNumber: true, rank: 1, key: (j) => j.cpus, text: (j) => String(j.cpus) },
  { title: "Wanted", hint: "Share of time in a slot that its weight gives it", isNumber: true, rank: 1, key: (j) => j.share_wanted, text: (j) => percent(j.share_wanted) },
  { title: "Had", hint: "Share of time in a slot that it had over the last ten seconds", isNumber: true, rank: 0, key: (j) => j.share_had, text: (j) => percent(j.share_had) },
  { title: "Together", hint: "Share of its slots in which all of its runnable threads were on CPUs; marked where it is less than 90 %", isNumber: true, rank: 0, key: (j) => missing(j.coscheduled), text: (j) => `${isApart(j) ? "⚠ " : ""}${percent(j.coscheduled)}` },
  { title: "Skew p99", hint: "First to last thread at the beginnings and ends of slots", isNumber: true, rank: 2, key: (j) => missing(j.skew_us_p99), text: (j) => micros(j.skew_us_p99) },
  { title: "CPUs used", hint: "CPUs that it used lately", isNumber: true, rank: 2, key: (j) => missing(j.cpus_used), text: (j) => count(j.cpus_used, 2) },
  { title: "Filling", hint: "Share of its CPU time out of its slots, in holes that others left", isNumber: true, rank: 2, key: (j) => missing(j.filling), text: (j) => percent(j.filling) },
  { title: "Done", hint: "Share of its work that it has done, where its program says so", isNumber: true, rank: 1, key: (j) => missing(doneOf(j)), text: (j) => percent(doneOf(j)) },
  { title: "Memory", hint: "Memory that it uses, where it asked for some", isNumber: true, rank: 2, key: (j) => missing(j.mem_used_bytes), text: (j) => bytes(j.mem_used_bytes) },
];

interface Line {
  row: HTMLTableRowElement;
  cells: HTMLElement[];
  link: HTMLAnchorElement;
}

/** Which column, and which way: kept while other pages are shown. */
const order = { column: 0, isDown: false };
let wanted = "";

export class Jobs {
  readonly section: HTMLElement;
  private readonly body = element("tbody");
  private readonly heads: HTMLElement[] = [];
  private readonly none = element("p", { class: "quiet" });
  private readonly found = element("p", { class: "quiet", role: "status" });
  private readonly lines = new Map<number, Line>();
  private shown: number[] = [];
  /** Lines on the screen, or nearly. */
  private readonly seen = new Set<Element>();
  private readonly watcher = new IntersectionObserver((entries) => this.look(entries), { rootMargin: "50%" });
  /** The place in the list of the next line that is not seen and has its turn. */
  private turn = 0;

  constructor(private readonly machine: Machine) {
    const head = element("tr");
    COLUMNS.forEach((column, at) => {
      const press = element("button", { type: "button", title: column.hint, onclick: () => this.sortBy(at) }, column.title);
      const cell = element("th", { scope: "col", class: classOf(column) }, press);
      this.heads.push(cell);
      head.append(cell);
    });
    const filter = element("input", {
      type: "search",
      id: "filter",
      value: wanted,
      placeholder: "name, owner, class, state",
      oninput: () => {
        wanted = filter.value;
        this.renew();
      },
    });
    this.section = element(
      "section",
      { class: "jobs", "aria-labelledby": "jobs-title" },
      element(
        "div",
        { class: "head" },
        element("h2", { id: "jobs-title" }, "Jobs"),
        element("label", { class: "filter", for: "filter" }, "Filter ", filter),
      ),
      element(
        "div",
        { class: "scroll", role: "region", "aria-label": "List of jobs", tabindex: 0 },
        element("table", {}, element("thead", {}, head), this.body),
      ),
      this.none,
      this.found,
    );
    this.showOrder();
  }

  close(): void {
    this.watcher.disconnect();
  }

  private look(entries: IntersectionObserverEntry[]): void {
    for (const { target, isIntersecting } of entries) {
      if (!isIntersecting) {
        this.seen.delete(target);
        continue;
      }
      this.seen.add(target);
      const id = Number((target as HTMLElement).dataset["job"]);
      const [line, job] = [this.lines.get(id), this.machine.jobs.get(id)];
      if (line && job) this.fill(line, job);
    }
  }

  private sortBy(at: number): void {
    if (order.column === at) order.isDown = !order.isDown;
    else [order.column, order.isDown] = [at, COLUMNS[at]!.isNumber && at !== 0];
    this.showOrder();
    this.renew();
  }

  private showOrder(): void {
    this.heads.forEach((head, at) => {
      const sorted = at === order.column ? (order.isDown ? "descending" : "ascending") : "none";
      head.setAttribute("aria-sort", sorted);
    });
  }

  renew(): void {
    const all = [...this.machine.jobs.values()];
    const words = wanted.toLowerCase().split(/\s+/).filter((word) => word !== "");
    const matches = all.filter((job) => {
      const text = `${job.id} ${job.name} ${job.owner} ${job.class} ${job.state}`.toLowerCase();
      return words.every((word) => text.includes(word));
    });
    const { key } = COLUMNS[order.column]!;
    const way = order.isDown ? -1 : 1;
    matches.sort((a, b) => {
      const [x, y] = [key(a), key(b)];
      return way * (x < y ? -1 : x > y ? 1 : 0) || a.id - b.id;
    });
    this.place(matches);
    say(this.none, all.length === 0 ? "No jobs. A program becomes one by: gang run -- PROGRAM" : "");
    say(this.found, words.length ? `${plural(matches.length, "job")} of ${all.length} fit the filter.` : "");
  }

  private place(jobs: Job[]): void {
    if (this.turn >= jobs.length) this.turn = 0;
    const until = this.turn + UNSEEN_AT_A_TIME;
    jobs.forEach((job, at) => {
      const known = this.lines.get(job.id);
      const hasTurn = at >= this.turn && at < until;
      if (!known || hasTurn || this.seen.has(known.row)) this.fill(known ?? this.add(job.id), job);
    });
    this.turn = until;
    const ids = jobs.map((job) => job.id);
    if (ids.length !== this.shown.length || ids.some((id, at) => id !== this.shown[at])) {
      // The focus stays at its link in the table.
      const focused = document.activeElement;
      this.body.replaceChildren(...ids.map((id) => this.lines.get(id)!.row));
      if (focused instanceof HTMLElement && this.body.contains(focused)) focused.focus();
      this.shown = ids;
    }
    for (const [id, line] of this.lines) {
      if (this.machine.jobs.has(id)) continue;
      this.lines.delete(id);
      this.watcher.unobserve(line.row);
      this.seen.delete(line.row);
    }
  }

  private add(id: number): Line {
    const row = element("tr", { "data-job": id });
    const link = element("a", { href: `#/job/${id}` });
    const cells = COLUMNS.map((column) => {
      if (column.title === "Name") {
        row.append(element("th", { scope: "row", class: classOf(column) }, link));
        return link;
      }
      const cell = element("td", { class: classOf(column) });
      if (column.title === "Job") {
        const number = element("span");
        const mark = element("span", { class: "mark" });
        mark.style.background = jobColour(id);
        cell.append(mark, number);
        row.append(cell);
        return number;
      }
      row.append(cell);
      return cell;
    });
    const line = { row, cells, link };
    this.lines.set(id, line);
    this.watcher.observe(row);
    return line;
  }

  private fill(line: Line, job: Job): void {
    COLUMNS.forEach((column, at) => say(line.cells[at]!, column.text(job)));
    const state = ACTIVE.includes(job.state) ? "running" : job.state;
    if (line.row.dataset["state"] !== state) line.row.dataset["state"] = state;
  }
}

function classOf(column: Column): string {
  return `${column.isNumber ? "number" : "text"} rank${column.rank}`;
}
