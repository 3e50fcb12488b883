// The current frame as an Ousterhout matrix: a column for each CPU, a row for each slice. The row
// of the slice under way moves down and begins again at the top, like the beam of an oscilloscope.
// Below it stand the planned rows and, dimmed, the rows of the last round.
//
// A round has up to 160 rows of a hundred CPUs, of which one or two change from a frame to the
// next. So a frame draws these rows, and the row that had the mark before. All edges are edges of
// pixels, so that a drawing covers all of the one before it.

import { jobColour, jobInk, palette } from "./colours.js";
import { jobOn, type Machine, type Row } from "./machine.js";
import { Picture, pictureHeight, type Controls } from "./picture.js";
import { percent, printable } from "./text.js";

/** A round takes about so long, so that an eye can follow. */
const ROUND_US = 1_600_000;
const ROWS_MIN = 16;
const ROWS_MAX = 160;
const LABEL_PX = 12;
const ARROW_PX = 7;

export class Matrix extends Picture implements Controls {
  private zoomed = 1;
  private firstColumn = 0;
  private heldAt_us = 0;
  /** The row at each place of the round, and its shade; empty: nothing drawn holds. */
  private drawn: (Row | undefined)[] = [];
  private shades: number[] = [];
  private wanted: (Row | undefined)[] = [];
  private drawnColumns = 0;
  private drawnFirst = 0;
  /** The place that is marked, or -1. */
  private marked = -1;

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

  protected forget(): void {
    this.drawn.length = 0;
  }

  protected override hold(held: boolean): void {
    this.heldAt_us = this.machine.now_us();
    super.hold(held);
  }

  private now_us(): number {
    return this.held ? this.heldAt_us : this.machine.now_us();
  }

  /** Rows of a round. Slice and zoom alone determine the number, so that rows keep their place. */
  private rows(): number {
    const slice_us = (this.machine.status?.slice_ns ?? 1e7) / 1000;
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
    const { machine } = this;
    const rows = this.rows();
    const columns = this.columns();
    const isNew =
      this.drawn.length !== rows || this.drawnColumns !== columns || this.drawnFirst !== this.firstColumn;
    if (isNew) this.begin(rows, columns);
    // Where the last known round is over, the oldest row that is shown is the one below the newest.
    const under = machine.rowAt(this.now_us());
    const last = machine.rows[machine.rows.length - 1];
    const current = under?.slice ?? last?.slice ?? 0;
    const until = Math.min(last?.slice ?? 0, current + rows - 1);
    this.wanted.fill(undefined);
    for (let at = machine.rows.length - 1; at >= 0; at--) {
      const row = machine.rows[at]!;
      if (row.slice > until) continue;
      if (row.slice <= until - rows) break;
      this.wanted[row.slice % rows] = row;
    }
    const mark = under ? current % rows : -1;
    const shade = (row: Row) => (row.slice === current ? 1 : row.slice > current ? 0.75 : 0.32);
    let isSame = !isNew && mark === this.marked;
    for (let at = 0; isSame && at < rows; at++) isSame = this.stands(at, this.wanted[at], shade);
    if (isSame) return;

    const [markFrom, markUntil] = this.reachOfMark(this.marked, rows);
    let [top, bottom] = isNew ? [0, rows] : [rows, 0];
    this.context.setTransform(1, 0, 0, 1, 0, 0);
    for (let at = 0; at < rows; at++) {
      const row = this.wanted[at];
      if ((at < markFrom || at >= markUntil) && this.stands(at, row, shade)) continue;
      this.drawn[at] = row;
      this.shades[at] = row ? shade(row) : 0;
      this.drawRow(at, rows, columns);
      [top, bottom] = [Math.min(top, at), Math.max(bottom, at + 1)];
    }
    this.drawGrid(columns, this.top(top, rows), this.top(bottom, rows));
    if (mark >= 0) this.drawMark(mark, rows);
    this.marked = mark;
    this.note("slice", String(current));
    this.note("rows", String(rows));
  }

  /** Draws the empty picture: nothing of what was drawn holds. */
  private begin(rows: number, columns: number): void {
    const { context, canvas } = this;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.fillStyle = palette().ground;
    context.fillRect(0, 0, canvas.width, canvas.height);
    this.drawn = new Array<Row | undefined>(rows).fill(undefined);
    this.shades = new Array<number>(rows).fill(0);
    this.wanted = new Array<Row | undefined>(rows).fill(undefined);
    [this.drawnColumns, this.drawnFirst, this.marked] = [columns, this.firstColumn, -1];
  }

  private stands(at: number, row: Row | undefined, shade: (row: Row) => number): boolean {
    return this.drawn[at] === row && (row === undefined || this.shades[at] === shade(row));
  }

  /** The first line of pixels of a place, and the first column of pixels of a CPU. */
  private top(at: number, rows: number): number {
    return Math.round((at * this.canvas.height) / rows);
  }

  private left(column: number, columns: number): number {
    return Math.round((column * this.canvas.width) / columns);
  }

  /** Where there is room, there is a line between rows. */
  private gap(rows: number): number {
    return this.height / rows >= 4 ? Math.max(1, Math.round(this.ratio)) : 0;
  }

  private drawRow(at: number, rows: number, columns: number): void {
    const { context, firstColumn, ratio } = this;
    const y = this.top(at, rows);
    const deep = this.top(at + 1, rows) - y;
    const high = deep - this.gap(rows);
    context.fillStyle = palette().ground;
    context.fillRect(0, y, this.canvas.width, deep);
    const row = this.drawn[at];
    if (!row) return;
    context.globalAlpha = this.shades[at]!;
    for (const { job, cpus } of row.slots) {
      context.fillStyle = jobColour(job);
      for (let pair = 0; pair < cpus.length; pair += 2) {
        const from = Math.max(cpus[pair]!, firstColumn) - firstColumn;
        const until = Math.min(cpus[pair + 1]! + 1, firstColumn + columns) - firstColumn;
        if (until <= from) continue;
        const x = this.left(from, columns);
        const wide = this.left(until, columns) - x;
        context.fillRect(x, y, wide, high);
        if (high >= LABEL_PX * ratio && wide >= 28 * ratio) {
          context.fillStyle = jobInk(job);
          context.font = `${11 * ratio}px system-ui, sans-serif`;
          context.textBaseline = "middle";
          context.textAlign = "left";
          context.fillText(String(job), x + 5 * ratio, y + high / 2 + 0.5, wide - 8 * ratio);
          context.fillStyle = jobColour(job);
        }
      }
    }
    context.globalAlpha = 1;
  }

  /** Marks the row that runs, around it, so that what is in it can be seen. */
  private drawMark(at: number, rows: number): void {
    const { context, ratio } = this;
    const wide = this.canvas.width;
    const { y, under, line } = this.placeOfMark(at, rows);
    const middle = (y + under) / 2;
    context.fillStyle = palette().accent;
    context.fillRect(0, y - line, wide, line);
    context.fillRect(0, under, wide, line);
    for (const [x, way] of [[0, 1], [wide, -1]] as const) {
      context.beginPath();
      context.moveTo(x, middle - ARROW_PX * ratio);
      context.lineTo(x + way * 10 * ratio, middle);
      context.lineTo(x, middle + ARROW_PX * ratio);
      context.fill();
    }
  }

  private placeOfMark(at: number, rows: number): { y: number; under: number; line: number } {
    const line = Math.max(1, Math.round(1.5 * this.ratio));
    return { y: this.top(at, rows), under: this.top(at + 1, rows) - this.gap(rows), line };
  }

  /** The places that the mark of a row is on. */
  private reachOfMark(at: number, rows: number): [from: number, until: number] {
    if (at < 0) return [0, 0];
    const { y, under, line } = this.placeOfMark(at, rows);
    const middle = (y + under) / 2;
    const reach = ARROW_PX * this.ratio + 1;
    const [first, last] = [Math.min(y - line, middle - reach), Math.max(under + line, middle + reach)];
    const at_px = rows / this.canvas.height;
    return [Math.floor(first * at_px) - 1, Math.ceil(last * at_px) + 1];
  }

  /** Lines between CPUs, from one line of pixels to another. */
  private drawGrid(columns: number, from: number, until: number): void {
    if (this.width / columns < 5) return;
    this.context.fillStyle = palette().ground;
    const line = Math.max(1, Math.round(this.ratio));
    for (let column = 1; column < columns; column++) {
      this.context.fillRect(this.left(column, columns) - (line >> 1), from, line, until - from);
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
