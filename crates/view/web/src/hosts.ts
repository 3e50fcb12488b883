// The page of all hosts: the matrix, the hosts, and the jobs that span them.

import { jobColour } from "./colours.js";
import { element, Figures, say } from "./dom.js";
import { HostMatrix } from "./hostmatrix.js";
import type { Machine } from "./machine.js";
import { duration, percent, plural, printable } from "./text.js";

export class HostsPage {
  readonly section: HTMLElement;
  private readonly figures = new Figures();
  private readonly matrix: HostMatrix;
  private readonly trouble = element("p", { class: "trouble", role: "status" });
  private readonly jobs = element("tbody");
  private readonly noJobs = element("p", { class: "quiet" });
  private readonly hosts = element("tbody");

  constructor(private readonly machine: Machine) {
    this.matrix = new HostMatrix(machine);
    const table = (label: string, heads: string[], body: HTMLElement) =>
      element(
        "div",
        { class: "scroll", role: "region", "aria-label": label, tabindex: 0 },
        element("table", {}, element("thead", {}, element("tr", {}, ...heads.map((head) => element("th", { scope: "col" }, head)))), body),
      );
    this.section = element(
      "div",
      { class: "hosts" },
      element("section", { "aria-label": "Cluster" }, this.figures.list, this.trouble),
      this.matrix.section,
      element("section", {}, element("h2", {}, "Jobs that span hosts"), table("List of jobs that span hosts", ["ID", "Name", "Owner", "Class", "State", "Rows", "Hosts"], this.jobs), this.noJobs),
      element("section", {}, element("h2", {}, "Hosts"), table("List of hosts", ["Name", "CPUs", "State"], this.hosts)),
    );
  }

  close(): void {
    this.matrix.close();
  }

  renew(): void {
    const { cluster } = this.machine;
    if (!cluster) {
      say(this.trouble, "The daemon is in no cluster.");
      return;
    }
    const { name, slice_ns, frame, unreachable, jobs } = cluster.said;
    const { figures } = this;
    figures.set("Cluster", printable(name));
    figures.set("Hosts alive", `${cluster.alive()} of ${cluster.hosts.length}`);
    figures.set("CPUs", String(cluster.columns));
    figures.set("Frame", frame === null || slice_ns === null ? "not read from etcd yet" : `${plural(frame, "row")}, slices of ${duration(slice_ns)}`);
    figures.set("Jobs that span hosts", String(jobs.length));
    say(this.trouble, unreachable === null ? "" : `etcd cannot be reached: ${printable(unreachable)}. Slots go on.`);
    fill(this.jobs, jobs.map((job) => [String(job.id), printable(job.name), printable(job.owner), job.class, printable(job.state), job.share === null ? "–" : percent(job.share), printable(job.hosts)]), (row, at) => {
      const { id } = jobs[at]!;
      const link = row.querySelector("a")!;
      const href = `#/job/${id}`;
      if (link.getAttribute("href") !== href) link.setAttribute("href", href);
      row.querySelector<HTMLElement>(".mark")!.style.background = jobColour(id);
    });
    say(this.noJobs, jobs.length ? "" : "None.");
    fill(this.hosts, cluster.hosts.map((host) => [printable(host.name), String(host.cpus), printable(host.state)]));
  }
}

/** Brings the lines of a table where they should be. With `finish`, the name is a link. */
function fill(body: HTMLElement, rows: string[][], finish?: (row: Element, at: number) => void): void {
  while (body.children.length > rows.length) body.lastElementChild!.remove();
  rows.forEach((cells, at) => {
    const row = body.children[at] ?? body.appendChild(line(cells.length, finish !== undefined));
    cells.forEach((text, column) => {
      const cell = row.children[column]!;
      say(cell.querySelector("a, .value") ?? cell, text);
    });
    finish?.(row, at);
  });
}

function line(cells: number, hasLink: boolean): HTMLElement {
  const cell = (at: number) => {
    if (!hasLink) return at === 0 ? element("th", { scope: "row" }) : element("td");
    if (at === 0) return element("td", {}, element("span", { class: "mark" }), element("span", { class: "value" }));
    return at === 1 ? element("th", { scope: "row" }, element("a", { href: "#/" })) : element("td");
  };
  return element("tr", {}, ...Array.from({ length: cells }, (_, at) => cell(at)));
}
