// The matrix of all hosts: a column for each CPU, by host; a row for each row of the frame. The row
// that is on now is marked.
//
// The entries change about once a second, and the mark with each slice. So the entries are painted
// on a canvas of their own when they, the size or the section that is shown change. A frame copies
// that canvas, and draws the mark. An entry is a few rectangles, however many CPUs and rows it has,
// so that painting costs as many rectangles as jobs have hosts.

import type { Cluster } from "./cluster.js";
import { jobColour, jobInk, palette } from "./colours.js";
import { fontSize_px } from "./dom.js";
import { rowAt } from "./frame.js";
import type { Machine } from "./machine.js";
import { Picture, pictureHeight, type Controls } from "./picture.js";
import { plural, printable } from "./text.js";

/** Fewest columns and rows that are shown, where there are as many. */
const COLUMNS_LEAST = 8;
const ROWS_LEAST = 8;
/** Names of hosts and numbers of rows: of the page's letters. */
const LETTERS = 0.8;
const BETWEEN_PX = 8;
const ARROW_PX = 7;
/** A host that is away. */
const AWAY_SHADE = 0.35;

/** The section that is shown, in columns and rows; fractions of them, too. */
interface Section {
  left: number;
  top: number;
  wide: number;
  high: number;
}

export class HostMatrix extends Picture implements Controls {
  private readonly painted = document.createElement("canvas");
  private readonly paint = this.painted.getContext("2d", { alpha: false })!;
  private paintedOf: Cluster | undefined;
  /** How often it was painted. */
  private paintings = 0;
  private zoomed = 1;
  private left = 0;
  private top = 0;
  private isOld = true;
  private marked = -1;
  private heldAt_us = 0;
  private dragged: [x: number, y: number] | undefined;

  constructor(private readonly machine: Machine) {
    super(
      "Matrix of all hosts",
      "hostmatrix",
      "A column for each CPU, by host; a row for each row of the frame. The marked row is on now, on all hosts.",
    );
    this.canvas.addEventListener("pointerdown", (event) => {
      if (event.pointerType !== "touch") this.dragged = [event.offsetX, event.offsetY];
    });
    this.canvas.addEventListener("pointermove", (event) => this.drag(event));
  }

  protected controls(): Controls {
    return this;
  }

  protected wantedHeight(): number {
    return Math.round(1.6 * pictureHeight());
  }

  protected forget(): void {
    this.isOld = true;
  }

  protected override hold(held: boolean): void {
    this.heldAt_us = this.machine.now_us();
    super.hold(held);
  }

  private cluster(): Cluster | undefined {
    const { cluster } = this.machine;
    return cluster && cluster.columns > 0 && cluster.said.frame ? cluster : undefined;
  }

  private frame(): number {
    return Math.max(1, this.cluster()?.said.frame ?? 1);
  }

  /** The row that is on, or -1 where that is not known. */
  private now(): number {
    const slice_ns = this.cluster()?.said.slice_ns;
    const now_us = this.held ? this.heldAt_us : this.machine.now_us();
    return slice_ns ? rowAt(now_us, slice_ns, this.frame()) : -1;
  }

  // The pixels of the heading and of the numbers of rows, and of what is left beside them.

  private letter_px(): number {
    return Math.round(LETTERS * fontSize_px());
  }

  private head_px(): number {
    return this.letter_px() + 8;
  }

  private side_px(): number {
    return Math.ceil(String(this.frame() - 1).length * this.letter_px() * 0.62) + 12;
  }

  private shown(): Section {
    const columns = this.cluster()?.columns ?? 1;
    const rows = this.frame();
    const wide = Math.max(Math.min(COLUMNS_LEAST, columns), columns / this.zoomed);
    const high = Math.max(Math.min(ROWS_LEAST, rows), rows / this.zoomed);
    const within = (first: number, last: number) => Math.min(Math.max(0, first), last);
    return { left: within(this.left, columns - wide), top: within(this.top, rows - high), wide, high };
  }

  /** The place of a point in the matrix, in columns and rows. */
  private place(x: number, y: number): [column: number, row: number] {
    const { left, top, wide, high } = this.shown();
    const [side, head] = [this.side_px(), this.head_px()];
    const column = left + ((x - side) / Math.max(1, this.width - side)) * wide;
    return [column, top + ((y - head) / Math.max(1, this.height - head)) * high];
  }

  private move(left: number, top: number): void {
    [this.left, this.top] = [left, top];
    ({ left: this.left, top: this.top } = this.shown());
    this.isOld = true;
  }

  zoom(factor: number, x: number, y: number): void {
    const [column, row] = this.place(x, y);
    const before = this.shown();
    const most = Math.max(1, (this.cluster()?.columns ?? 1) / COLUMNS_LEAST);
    this.zoomed = Math.min(most, Math.max(1, this.zoomed * factor));
    const after = this.shown();
    // The cell under the pointer stays there.
    const left = column - (column - before.left) * (after.wide / before.wide);
    this.move(left, row - (row - before.top) * (after.high / before.high));
  }

  pan(steps: number): void {
    const { left, top, wide } = this.shown();
    this.move(left + (steps * wide) / 8, top);
  }

  panRows(steps: number): void {
    const { left, top, high } = this.shown();
    this.move(left, top + (steps * high) / 8);
  }

  reset(): void {
    this.zoomed = 1;
    this.move(0, 0);
    this.hold(false);
  }

  private drag(event: PointerEvent): void {
    if (!this.dragged || !(event.buttons & 1)) {
      this.dragged = undefined;
      return;
    }
    const [x, y] = [event.offsetX, event.offsetY];
    const [from, to] = [this.place(...this.dragged), this.place(x, y)];
    const { left, top } = this.shown();
    this.move(left + from[0] - to[0], top + from[1] - to[1]);
    this.dragged = [x, y];
  }

  protected draw(): void {
    const cluster = this.cluster();
    const row = cluster ? this.now() : -1;
    const isNew = this.isOld || cluster !== this.paintedOf;
    if (!isNew && row === this.marked) return;
    const { context } = this;
    if (isNew) this.paintAll(cluster);
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.drawImage(this.painted, 0, 0);
    this.drawMark(row);
    this.marked = row;
    this.note("row", String(row));
    const { wide, high } = this.shown();
    this.note("painted", String(this.paintings));
    this.note("columns", String(Math.round(wide)));
    this.note("rows", String(Math.round(high)));
  }

  /** The pixel of the screen at which a column or a row begins. */
  private x(column: number): number {
    const { left, wide } = this.shown();
    const side = this.side_px() * this.ratio;
    return Math.round(side + ((column - left) / wide) * (this.canvas.width - side));
  }

  private y(row: number): number {
    const { top, high } = this.shown();
    const head = this.head_px() * this.ratio;
    return Math.round(head + ((row - top) / high) * (this.canvas.height - head));
  }

  private paintAll(cluster: Cluster | undefined): void {
    const { paint, painted, canvas, ratio } = this;
    this.isOld = false;
    this.paintedOf = cluster;
    this.paintings++;
    [painted.width, painted.height] = [canvas.width, canvas.height];
    paint.fillStyle = palette().ground;
    paint.fillRect(0, 0, painted.width, painted.height);
    if (!cluster) return;
    paint.save();
    paint.beginPath();
    const [side, head] = [this.side_px() * ratio, this.head_px() * ratio];
    paint.rect(side, head, painted.width - side, painted.height - head);
    paint.clip();
    this.paintEntries(cluster);
    this.paintLines(cluster);
    paint.restore();
    this.paintHosts(cluster);
    this.paintRows();
  }

  private paintEntries(cluster: Cluster): void {
    const { paint, ratio } = this;
    const letter = this.letter_px() * ratio;
    // Where there is room, there is a line between rows.
    const line = this.y(1) - this.y(0) >= 4 * ratio ? Math.max(1, Math.round(ratio)) : 0;
    paint.font = `${letter}px system-ui, sans-serif`;
    paint.textBaseline = "middle";
    paint.textAlign = "left";
    for (const { job, rows, cpus } of cluster.entries) {
      const name = printable(job.name);
      const room = paint.measureText(name).width + 8 * ratio;
      for (const [place, ranges] of cpus) {
        const host = cluster.hosts[place]!;
        paint.globalAlpha = host.isAlive ? 1 : AWAY_SHADE;
        for (let at = 0; at < ranges.length; at += 2) {
          const x = this.x(host.first + ranges[at]!);
          const wide = Math.max(1, this.x(host.first + ranges[at + 1]! + 1) - x);
          if (x > this.painted.width || x + wide < 0) continue;
          for (let of = 0; of < rows.length; of += 2) {
            const y = this.y(rows[of]!);
            const high = Math.max(1, this.y(rows[of + 1]! + 1) - y - line);
            if (y > this.painted.height || y + high < 0) continue;
            paint.fillStyle = jobColour(job.id);
            paint.fillRect(x, y, wide, high);
            if (wide < room || high < 1.4 * letter) continue;
            paint.fillStyle = jobInk(job.id);
            paint.fillText(name, x + 4 * ratio, y + high / 2);
          }
        }
      }
    }
    paint.globalAlpha = 1;
  }

  /** Lines between CPUs where there is room, and between hosts. */
  private paintLines(cluster: Cluster): void {
    const { paint, painted, ratio } = this;
    const line = Math.max(1, Math.round(ratio));
    const { left, wide } = this.shown();
    const column_px = (this.canvas.width - this.side_px() * ratio) / wide;
    if (column_px >= 5 * ratio) {
      paint.fillStyle = palette().ground;
      for (let at = Math.ceil(left); at < left + wide; at++) {
        paint.fillRect(this.x(at) - (line >> 1), 0, line, painted.height);
      }
    }
    paint.fillStyle = palette().text;
    for (const { first, cpus } of cluster.hosts) {
      if (cpus * column_px < 4 * ratio && cluster.hosts.length > 1 && cpus > 1) continue;
      if (first > 0) paint.fillRect(this.x(first) - (line >> 1), 0, line, painted.height);
    }
  }

  /** Names of hosts, as far as they fit beside each other. */
  private paintHosts(cluster: Cluster): void {
    const { paint, painted, ratio } = this;
    const letter = this.letter_px() * ratio;
    paint.font = `${letter}px system-ui, sans-serif`;
    paint.textBaseline = "middle";
    paint.textAlign = "left";
    let free = this.side_px() * ratio;
    for (const host of cluster.hosts) {
      const until = this.x(host.first + host.cpus);
      const x = Math.max(this.x(host.first) + 3 * ratio, this.side_px() * ratio);
      if (until <= free || x < free || x >= painted.width) continue;
      const name = printable(host.name) + (host.isAlive ? "" : " (away)");
      const wide = paint.measureText(name).width;
      if (x + wide > painted.width) continue;
      paint.fillStyle = host.isAlive ? palette().text : palette().quiet;
      paint.fillText(name, x, (this.head_px() * ratio) / 2);
      free = x + wide + BETWEEN_PX * ratio;
    }
  }

  /** Numbers of rows, as far as they fit below each other. */
  private paintRows(): void {
    const { paint, painted, ratio } = this;
    const letter = this.letter_px() * ratio;
    const { top, high } = this.shown();
    const row_px = Math.max(1e-6, (painted.height - this.head_px() * ratio) / high);
    const step = Math.max(1, Math.ceil((1.4 * letter) / row_px));
    paint.fillStyle = palette().quiet;
    paint.textAlign = "right";
    for (let row = Math.ceil(top / step) * step; row < top + high; row += step) {
      const y = (this.y(row) + this.y(row + 1)) / 2;
      const isCut = y < (this.head_px() + this.letter_px() / 2) * ratio || y + letter / 2 > painted.height;
      if (!isCut) paint.fillText(String(row), (this.side_px() - 8) * ratio, y);
    }
  }

  /** Marks a row, around it, so that what is in it can be seen. */
  private drawMark(row: number): void {
    const { top, high } = this.shown();
    if (row < 0 || row + 1 <= top || row >= top + high) return;
    const { context, canvas, ratio } = this;
    const line = Math.max(1, Math.round(1.5 * ratio));
    const [side, head] = [this.side_px() * ratio, this.head_px() * ratio];
    const y = Math.max(head, this.y(row));
    const under = Math.min(canvas.height, Math.max(y + 1, this.y(row + 1)));
    const middle = (y + under) / 2;
    context.fillStyle = palette().accent;
    context.fillRect(side, Math.max(head, y - line), canvas.width - side, line);
    context.fillRect(side, Math.min(canvas.height - line, under), canvas.width - side, line);
    for (const [x, way] of [[side, 1], [canvas.width, -1]] as const) {
      context.beginPath();
      context.moveTo(x, middle - ARROW_PX * ratio);
      context.lineTo(x + way * 10 * ratio, middle);
      context.lineTo(x, middle + ARROW_PX * ratio);
      context.fill();
    }
  }

  at(x: number, y: number): string {
    const cluster = this.cluster();
    if (!cluster) return "";
    const [column, row] = this.place(x, y).map(Math.floor) as [number, number];
    const isIn = x >= this.side_px() && column >= 0 && column < cluster.columns;
    if (!isIn) return "";
    const place = cluster.hostAt(column);
    const host = cluster.hosts[place]!;
    const cpu = column - host.first;
    const where = `Host ${printable(host.name)} (${printable(host.state)}), CPU ${cpu}`;
    if (y < this.head_px() || row >= this.frame()) return where;
    const job = cluster.jobAt(place, cpu, row);
    return `${where}, row ${row}: ${job ? `job ${job.id}, ${printable(job.name)}` : "no job that spans hosts"}`;
  }

  inWords(): string {
    const cluster = this.cluster();
    if (!cluster) return "The matrix is not known.";
    const hosts = `${cluster.alive()} of ${plural(cluster.hosts.length, "host")} are alive.`;
    const row = this.now();
    if (row < 0) return hosts;
    const on = cluster.inRow(row);
    const parts = on.slice(0, 12).map(({ job, cpus }) => `job ${job.id}, ${printable(job.name)}, on ${plural(cpus.size, "host")}`);
    const more = on.length - parts.length;
    const which = parts.length ? `: ${parts.join("; ")}${more > 0 ? `; and ${more} more` : ""}.` : ", in which no job has an entry.";
    return `${hosts} Row ${row} of ${this.frame()} is on${which}`;
  }
}
