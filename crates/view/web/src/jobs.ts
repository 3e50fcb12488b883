// The list of jobs: a table that is sorted by its heads and filtered by a word.
//
// A change in a table lays out all of it, which takes half a frame with 200 jobs. So the visible
// lines are renewed each time, and some of the others, in turn.

import { jobColour } from "./colours.js";
import { element, say } from "./dom.js";
import type { Machine } from "./machine.js";
import { helpOf, plural, titleOf, valueOf } from "./text.js";
import { ACTIVE, CLASSES, type Figure, type Job } from "./wire.js";

/** How many of the lines that cannot be seen are renewed at a time. */
const UNSEEN_AT_A_TIME = 20;

interface Line {
  row: HTMLTableRowElement;
  cells: HTMLElement[];
  link: HTMLAnchorElement;
}

/** By which figure, and which way: kept while other pages are shown. */
const order = { by: "id", isDown: false };
let wanted = "";

export class Jobs {
  readonly section: HTMLElement;
  private readonly columns: Figure[];
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

  constructor(private readonly machine: Machine, figures: Figure[]) {
    this.columns = figures.filter((figure) => figure.rank !== undefined);
    const head = element("tr");
    for (const figure of this.columns) {
      const press = element("button", { type: "button", title: helpOf(figure), onclick: () => this.sortBy(figure) }, titleOf(figure));
      const cell = element("th", { scope: "col", class: classOf(figure) }, press);
      this.heads.push(cell);
      head.append(cell);
    }
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

  private sortBy({ name, ascending }: Figure): void {
    order.isDown = order.by === name ? !order.isDown : !ascending;
    order.by = name;
    this.showOrder();
    this.renew();
  }

  private showOrder(): void {
    this.heads.forEach((head, at) => {
      const isSorted = this.columns[at]!.name === order.by;
      head.setAttribute("aria-sort", isSorted ? (order.isDown ? "descending" : "ascending") : "none");
    });
  }

  renew(): void {
    const all = [...this.machine.jobs.values()];
    const words = wanted.toLowerCase().split(/\s+/).filter((word) => word !== "");
    const matches = all.filter((job) => {
      const text = `${job.id} ${job.name} ${job.owner} ${job.class} ${job.state}`.toLowerCase();
      return words.every((word) => text.includes(word));
    });
    matches.sort((one, other) => compared(one, other) || one.id - other.id);
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
    const cells = this.columns.map((figure) => {
      if (figure.name === "name") {
        row.append(element("th", { scope: "row", class: classOf(figure) }, link));
        return link;
      }
      const cell = element("td", { class: classOf(figure) });
      if (figure.name === "id") {
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
    this.columns.forEach((figure, at) => say(line.cells[at]!, valueOf(figure, job)));
    const state = ACTIVE.includes(job.state) ? "running" : job.state;
    if (line.row.dataset["state"] !== state) line.row.dataset["state"] = state;
  }
}

/** Which of two jobs comes first; the one without a value comes last. */
function compared(one: Job, other: Job): number {
  const key = (job: Job) => (order.by === "class" ? CLASSES.indexOf(job.class) : job[order.by]);
  const [x, y] = [key(one), key(other)];
  if (x === undefined || y === undefined) return Number(x === undefined) - Number(y === undefined);
  return (order.isDown ? -1 : 1) * (x < y ? -1 : x > y ? 1 : 0);
}

/** Numbers stand right. */
function classOf({ unit, rank }: Figure): string {
  return `${["text", "class", "state"].includes(unit) ? "text" : "number"} rank${rank}`;
}
