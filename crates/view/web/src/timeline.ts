// The plan of the last seconds: a lane for each CPU, time from left to right.
//
// A picture of five seconds on 128 CPUs has tens of thousands of rectangles, too many for each of
// 60 frames a second. So the drawing is kept on a sheet that is used as a ring. A frame draws the
// rows that came since, and copies the sheet in two parts.

import { jobColour, palette } from "./colours.js";
import { fontSize_px } from "./dom.js";
import { jobOn, type Gap, type Machine, type Row } from "./machine.js";
import { Picture, pictureHeight, type Controls } from "./picture.js";
import { duration, percent, plural, printable } from "./text.js";

const SPAN_US = 5e6;
const SPAN_MIN_US = 4_000;
const LETTER_REM = 0.73;
/** In letters. */
const AXIS_HEIGHT = 1.64;
const STEPS_S = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10];
const LANE_MIN_PX = 2;

export class Timeline extends Picture implements Controls {
  private readonly letter_px = Math.round(LETTER_REM * fontSize_px());
  private readonly axis_px = Math.round(AXIS_HEIGHT * this.letter_px);
  private span_us = SPAN_US;
  /** How far the right edge is before now; the plan reaches ahead of it. */
  private back_us = 0;
  private heldAt_us = 0;
  private readonly sheet = document.createElement("canvas");
  private readonly ink: CanvasRenderingContext2D;
  /** The sheet is drawn up to this moment, and holds one span before it; undefined: not at all. */
  private drawnUntil_us: number | undefined;
  /** From this moment on nothing had arrived yet when it was drawn. */
  private missedFrom_us: number | undefined;
  private drawnSpan_us = 0;
  private drawnColumns = 0;
  /** For what the axis was drawn: it does not move. */
  private axis: { span_us: number; back_us: number; held: boolean } | undefined;

  constructor(private readonly machine: Machine) {
    super(
      "Timeline",
      "timeline",
      "A lane for each CPU: who had it in the last seconds, as planned. The figures of each job say how well that was kept.",
    );
    this.ink = this.sheet.getContext("2d", { alpha: false })!;
  }

  protected controls(): Controls {
    return this;
  }

  protected wantedHeight(): number {
    return Math.max(pictureHeight(), this.machine.columns() * LANE_MIN_PX + this.axis_px);
  }

  protected forget(): void {
    this.drawnUntil_us = undefined;
    this.axis = undefined;
  }

  protected override hold(held: boolean): void {
    this.heldAt_us = this.machine.now_us();
    super.hold(held);
  }

  private right_us(): number {
    return (this.held ? this.heldAt_us : this.machine.now_us()) - this.back_us;
  }

  zoom(factor: number, x: number): void {
    const from_right = 1 - x / this.width;
    const before = this.span_us;
    this.span_us = Math.min(this.machine.kept_us, Math.max(SPAN_MIN_US, this.span_us / factor));
    // The point under the pointer stays; in a picture that moves, the present stays.
    if (this.held) this.moveBack(from_right * (before - this.span_us));
  }

  pan(steps: number): void {
    this.moveBack((-steps * this.span_us) / 8);
  }

  private moveBack(by_us: number): void {
    this.back_us = Math.min(Math.max(0, this.back_us + by_us), this.machine.kept_us - this.span_us);
    if (this.back_us > 0 && !this.held) this.hold(true);
  }

  reset(): void {
    [this.span_us, this.back_us] = [SPAN_US, 0];
    this.hold(false);
  }

  protected draw(): void {
    const { context } = this;
    const right = this.right_us();
    this.renew(right);
    // The sheet in two parts: the older one is right of the place where it is written on.
    const scale = this.sheet.width / this.span_us;
    const at = Math.round((right % this.span_us) * scale);
    const [wide, deep] = [this.sheet.width, this.sheet.height];
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.imageSmoothingEnabled = false;
    if (at < wide) context.drawImage(this.sheet, at, 0, wide - at, deep, 0, 0, wide - at, deep);
    if (at > 0) context.drawImage(this.sheet, 0, 0, at, deep, wide - at, 0, at, deep);
    this.renewAxis();
    this.note("until", String(Math.round(right)));
  }

  /** Draws the axis where it is another one than before. */
  private renewAxis(): void {
    const { axis, span_us, back_us, held, context } = this;
    if (axis && axis.span_us === span_us && axis.back_us === back_us && axis.held === held) return;
    this.axis = { span_us, back_us, held };
    context.fillStyle = palette().ground;
    context.fillRect(0, this.sheet.height, this.canvas.width, this.canvas.height - this.sheet.height);
    context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    this.drawAxis(this.height - this.axis_px);
  }

  /** Draws on the sheet what came since it was drawn last; all of it where nothing of it holds. */
  private renew(right_us: number): void {
    const columns = this.machine.columns();
    const wide = this.canvas.width;
    const deep = Math.max(1, Math.round((this.height - this.axis_px) * this.ratio));
    if (this.sheet.width !== wide || this.sheet.height !== deep) {
      [this.sheet.width, this.sheet.height] = [wide, deep];
      this.drawnUntil_us = undefined;
    }
    const is_usable =
      this.drawnUntil_us !== undefined &&
      this.drawnSpan_us === this.span_us &&
      this.drawnColumns === columns &&
      right_us >= this.drawnUntil_us &&
      right_us - this.drawnUntil_us < this.span_us;
    let from_us = is_usable ? this.drawnUntil_us! : right_us - this.span_us;
    if (this.missedFrom_us !== undefined && is_usable) from_us = Math.min(from_us, this.missedFrom_us);
    from_us = Math.max(from_us, right_us - this.span_us);
    // From the edge of a pixel on: two halves of one, drawn after each other, would show as a line.
    from_us = Math.floor((from_us * wide) / this.span_us) * (this.span_us / wide);
    [this.drawnSpan_us, this.drawnColumns, this.drawnUntil_us] = [this.span_us, columns, right_us];
    this.paint(from_us, right_us);
    // The clock may be ahead of what has arrived: then that part is drawn again when it has.
    const last = this.machine.rows[this.machine.rows.length - 1]?.end_us ?? 0;
    this.missedFrom_us = last < right_us ? Math.max(last, right_us - this.span_us) : undefined;
  }

  private paint(from_us: number, until_us: number): void {
    if (until_us <= from_us) return;
    const { ink, machine } = this;
    const scale = this.sheet.width / this.span_us;
    const lane = this.sheet.height / this.drawnColumns;
    const line = lane >= 6 ? 1 : 0;
    this.clear(from_us, until_us, scale);
    for (let at = machine.indexAt(from_us); at < machine.rows.length; at++) {
      const row = machine.rows[at]!;
      if (row.start_us >= until_us) break;
      const [begin, end] = [Math.max(row.start_us, from_us), Math.min(row.end_us, until_us)];
      this.across(begin, end, scale, (x, wide) => {
        for (const { job, cpus } of row.slots) {
          ink.fillStyle = jobColour(job);
          for (let i = 0; i < cpus.length; i += 2) {
            const deep = (cpus[i + 1]! + 1 - cpus[i]!) * lane;
            ink.fillRect(x, cpus[i]! * lane, wide, deep - line);
          }
        }
      });
    }
    this.paintGaps(from_us, until_us, scale);
  }

  private clear(from_us: number, until_us: number, scale: number): void {
    const colours = palette();
    const lane = this.sheet.height / this.drawnColumns;
    this.across(from_us, until_us, scale, (x, wide) => {
      this.ink.fillStyle = colours.ground;
      this.ink.fillRect(x, 0, wide, this.sheet.height);
      if (lane < 6) return;
      this.ink.fillStyle = colours.grid;
      for (let cpu = 1; cpu <= this.drawnColumns; cpu++) this.ink.fillRect(x, cpu * lane - 1, wide, 1);
    });
  }

  /** They are drawn where they look unlike the lines of slices. One may span several rows. */
  private paintGaps(from_us: number, until_us: number, scale: number): void {
    const rows = this.machine.rows;
    this.ink.fillStyle = palette().ground;
    this.ink.globalAlpha = 0.8;
    for (let at = this.machine.indexAt(from_us); at < rows.length && rows[at]!.start_us < until_us; ) {
      const { start_us, gap } = rows[at]!;
      let end_us = start_us;
      for (; at < rows.length && isSame(rows[at]!.gap, gap); at++) end_us = rows[at]!.end_us;
      if (gap && gap.length_us * scale >= 2) {
        this.paintGapsOf(gap, Math.max(start_us, from_us), Math.min(end_us, until_us), scale);
      }
    }
    this.ink.globalAlpha = 1;
  }

  private paintGapsOf(gap: Gap, from_us: number, until_us: number, scale: number): void {
    const { length_us, period_us } = gap;
    for (let end = Math.ceil(from_us / period_us) * period_us; end - length_us < until_us; end += period_us) {
      const [begin, over] = [Math.max(end - length_us, from_us), Math.min(end, until_us)];
      if (over > begin) this.across(begin, over, scale, (x, wide) => this.ink.fillRect(x, 0, wide, this.sheet.height));
    }
  }

  /** Where a time is on the ring: one place, or two where it goes over the end. */
  private across(from_us: number, until_us: number, scale: number, paint: (x: number, wide: number) => void): void {
    const x = (from_us % this.span_us) * scale;
    const wide = (until_us - from_us) * scale;
    const fits = this.sheet.width - x;
    paint(x, Math.min(wide, fits));
    // A sliver that is due to rounding alone would be drawn as a line.
    if (wide > fits + 0.01) paint(0, wide - fits);
  }

  private drawAxis(top: number): void {
    const { context, width, letter_px } = this;
    context.fillStyle = palette().quiet;
    context.font = `${letter_px}px system-ui, sans-serif`;
    context.textBaseline = "middle";
    context.textAlign = "center";
    const wide = (label: string) => context.measureText(label).width;
    const wide_px = (step: number) => ((step * 1e6) / this.span_us) * width;
    const fits = (step: number) =>
      wide_px(step) >= 2 * letter_px && this.ticks(step).every(({ label }) => wide(label) + letter_px <= wide_px(step));
    // From right to left: a label that reaches over the edge, or to the one before, is left out.
    let free = width;
    for (const { x, label } of this.ticks(STEPS_S.find(fits) ?? STEPS_S[STEPS_S.length - 1]!)) {
      context.fillRect(Math.min(x, width - 1), top, 1, 4);
      const half = wide(label) / 2;
      const middle = x === width ? width - half : x;
      if (middle + half > free || middle < half) continue;
      context.fillText(label, middle, top + letter_px);
      free = middle - half - letter_px / 2;
    }
  }

  /** The labels of the axis. It counts back from now, or from when the picture was held. */
  private ticks(step: number): { x: number; label: string }[] {
    const ticks = [];
    for (let tick = Math.ceil(this.back_us / 1e6 / step); ; tick++) {
      const share = (tick * step * 1e6 - this.back_us) / this.span_us;
      if (share > 1) break;
      const label = tick === 0 ? (this.held ? "held" : "now") : `−${duration(tick * step * 1e9)}`;
      ticks.push({ x: this.width * (1 - share), label });
    }
    return ticks;
  }

  at(x: number, y: number): string {
    const us = this.right_us() - (1 - x / this.width) * this.span_us;
    const lane = (this.height - this.axis_px) / this.machine.columns();
    const cpu = Math.min(this.machine.columns() - 1, Math.floor(y / lane));
    const row = this.machine.rowAt(us);
    if (!row) return `CPU ${cpu}`;
    return `CPU ${cpu}, slice ${row.slice}: ${this.who(row, cpu)}`;
  }

  private who(row: Row, cpu: number): string {
    const job = jobOn(row, cpu);
    if (job === undefined) return row.restTurn ? "the rest of the machine" : "nobody";
    const known = this.machine.jobs.get(job);
    return known ? `job ${job}, ${printable(known.name)}` : `job ${job}, which has ended`;
  }

  inWords(): string {
    const right = this.right_us();
    const shares = this.machine.shares(right - this.span_us, right);
    const over = `In the ${duration(this.span_us * 1e3)} that are shown, ${plural(this.machine.columns(), "CPU")}:`;
    if (shares.length === 0) return `${over} no gang had a slot.`;
    const parts = shares.slice(0, 12).map(([job, share]) => {
      const name = this.machine.jobs.get(job)?.name;
      return `job ${job}${name === undefined ? "" : ` ${printable(name)}`} had ${percent(share)}`;
    });
    const more = shares.length - parts.length;
    return `${over} ${parts.join(", ")}${more > 0 ? `, and ${more} more had the rest of the slots` : ""}.`;
  }
}

function isSame(a: Gap | undefined, b: Gap | undefined): boolean {
  return a === b || (a?.length_us === b?.length_us && a?.period_us === b?.period_us);
}
