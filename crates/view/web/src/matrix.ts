// The current frame as an Ousterhout matrix: a column for each CPU, a row for each slice. Like the beam of an
// oscilloscope the row of the slice under way moves down and begins again at the top; below it stands what is
// planned, and, dimmed, what was there the last time round.

import { jobColour, jobInk, palette } from "./colours.js";
import { jobOn, type Machine, type Row } from "./machine.js";
import { Picture, pictureHeight, type Controls } from "./picture.js";
import { percent, printable } from "./text.js";

/** A round takes about so long, so that an eye can follow. */
const ROUND_US = 1_600_000;
const ROWS_MIN = 16;
const ROWS_MAX = 160;
const LABEL_PX = 12;

export class Matrix extends Picture implements Controls {
  private zoomed = 1;
  private firstColumn = 0;
  private heldAt_us = 0;

  constructor(private readonly machine: Machine) {
    super(
      "Matrix",
      "matrix",
      "A column for each CPU, a row for each slice; the marked row runs now, those below it are planned.",
    );
  }

  protected controls(): Controls {
    return this;
  }

  protected wantedHeight(): number {
    return pictureHeight();
  }

  protected forget(): void {}

  protected override hold(held: boolean): void {
    this.heldAt_us = this.machine.now_us();
    super.hold(held);
  }

  private now_us(): number {
    return this.held ? this.heldAt_us : this.machine.now_us();
  }

  /** Rows of a round: a number that depends on the slice and the zoom alone, so that rows keep their place. */
  private rows(): number {
    const slice_us = this.machine.status?.slice_us ?? 10_000;
    const whole = Math.min(ROWS_MAX, Math.max(ROWS_MIN, Math.round(ROUND_US / slice_us)));
    return Math.max(4, Math.round(whole / this.zoomed));
  }

  private columns(): number {
    return Math.max(1, Math.ceil(this.machine.columns() / this.zoomed));
  }

  zoom(factor: number, x: number): void {
    const all = this.machine.columns();
    const under = this.firstColumn + (x / this.width) * this.columns();
    this.zoomed = Math.min(32, Math.max(1, this.zoomed * factor));
    const first = Math.round(under - (x / this.width) * this.columns());
    this.firstColumn = Math.min(Math.max(0, first), all - this.columns());
  }

  pan(steps: number): void {
    const step = Math.max(1, Math.round(this.columns() / 8));
    const last = this.machine.columns() - this.columns();
    this.firstColumn = Math.min(Math.max(0, this.firstColumn + steps * step), last);
  }

  reset(): void {
    this.zoomed = 1;
    this.firstColumn = 0;
    this.hold(false);
  }

  protected draw(): void {
    const { context, width, height, machine } = this;
    const colours = palette();
    context.fillStyle = colours.ground;
    context.fillRect(0, 0, width, height);
    const now = this.now_us();
    const rows = this.rows();
    const columns = this.columns();
    const [rowHeight, columnWidth] = [height / rows, width / columns];
    // Where the last known round is over, the oldest row that is shown is the one below the newest.
    const under = machine.rowAt(now);
    const current = under?.slice ?? machine.rows[machine.rows.length - 1]?.slice ?? 0;
    const last = machine.rows[machine.rows.length - 1];
    const until = Math.min(last?.slice ?? 0, current + rows - 1);
    const gap = rowHeight >= 4 ? 1 : 0;
    for (let at = machine.rows.length - 1; at >= 0; at--) {
      const row = machine.rows[at]!;
      if (row.slice > until) continue;
      if (row.slice <= until - rows) break;
      context.globalAlpha = row.slice === current ? 1 : row.slice > current ? 0.75 : 0.32;
      const y = (row.slice % rows) * rowHeight;
      this.drawRow(row, y, rowHeight - gap, columnWidth, columns);
    }
    context.globalAlpha = 1;
    this.drawGrid(columns, columnWidth, rowHeight * rows);
    if (under) this.mark((current % rows) * rowHeight, rowHeight - gap, colours.accent);
    this.canvas.dataset["slice"] = String(current);
    this.canvas.dataset["rows"] = String(rows);
  }

  private drawRow(row: Row, y: number, height: number, columnWidth: number, columns: number): void {
    const { context, firstColumn } = this;
    for (const { job, cpus } of row.slots) {
      context.fillStyle = jobColour(job);
      for (let at = 0; at < cpus.length; at += 2) {
        const from = Math.max(cpus[at]!, firstColumn) - firstColumn;
        const until = Math.min(cpus[at + 1]! + 1, firstColumn + columns) - firstColumn;
        if (until <= from) continue;
        const [x, wide] = [from * columnWidth, (until - from) * columnWidth];
        context.fillRect(x, y, wide, height);
        if (height >= LABEL_PX && wide >= 28) {
          context.fillStyle = jobInk(job);
          context.font = "11px system-ui, sans-serif";
          context.textBaseline = "middle";
          context.textAlign = "left";
          context.fillText(String(job), x + 5, y + height / 2 + 0.5, wide - 8);
          context.fillStyle = jobColour(job);
        }
      }
    }
  }

  /** Marks the row that runs, around it, so that what is in it can be seen. */
  private mark(y: number, height: number, colour: string): void {
    const { context, width } = this;
    context.fillStyle = colour;
    context.fillRect(0, y - 1.5, width, 1.5);
    context.fillRect(0, y + height, width, 1.5);
    for (const [x, way] of [[0, 1], [width, -1]] as const) {
      context.beginPath();
      context.moveTo(x, y + height / 2 - 7);
      context.lineTo(x + way * 10, y + height / 2);
      context.lineTo(x, y + height / 2 + 7);
      context.fill();
    }
  }

  private drawGrid(columns: number, columnWidth: number, height: number): void {
    if (columnWidth < 5) return;
    this.context.fillStyle = palette().ground;
    for (let column = 1; column < columns; column++) {
      this.context.fillRect(column * columnWidth - 0.5, 0, 1, height);
    }
  }

  at(x: number, y: number): string {
    const cpu = this.firstColumn + Math.floor((x / this.width) * this.columns());
    const rows = this.rows();
    const index = Math.floor((y / this.height) * rows);
    const newest = this.machine.rows[this.machine.rows.length - 1]?.slice ?? 0;
    const current = this.machine.rowAt(this.now_us())?.slice ?? newest;
    const until = Math.min(newest, current + rows - 1);
    for (let at = this.machine.rows.length - 1; at >= 0; at--) {
      const row = this.machine.rows[at]!;
      if (row.slice > until) continue;
      if (row.slice <= until - rows) break;
      if (row.slice % rows === index) return `CPU ${cpu}, slice ${row.slice}: ${this.who(row, cpu)}`;
    }
    return `CPU ${cpu}`;
  }

  private who(row: Row, cpu: number): string {
    const job = jobOn(row, cpu);
    if (job === undefined) return row.restTurn ? "the rest of the machine" : "nobody";
    return this.name(job);
  }

  private name(job: number): string {
    const known = this.machine.jobs.get(job);
    return known ? `job ${job}, ${printable(known.name)}` : `job ${job}`;
  }

  inWords(): string {
    const row = this.machine.rowAt(this.now_us());
    if (!row) return "No slice is known of now.";
    if (row.slots.length === 0) return `In slice ${row.slice} no gang runs.`;
    const columns = this.machine.columns();
    const parts = row.slots.slice(0, 12).map(({ job, cpus }) => {
      let amount = 0;
      for (let at = 0; at < cpus.length; at += 2) amount += cpus[at + 1]! - cpus[at]! + 1;
      return `${this.name(job)}, on ${amount} of ${columns} CPUs (${percent(amount / columns)})`;
    });
    const more = row.slots.length - parts.length;
    return `In slice ${row.slice} run: ${parts.join("; ")}${more > 0 ? `; and ${more} more` : ""}.`;
  }
}
