// The last minutes of one job as curves.

import uPlot from "uplot";

import { STEPS_S, TimeAxis } from "./axis.js";
import { onSchemeChange, palette } from "./colours.js";
import { element, fontSize_px, measureIn } from "./dom.js";
import { moment, titleOf } from "./text.js";
import type { Figure, Past } from "./wire.js";

interface Chart {
  curves: Figure[];
  unit: string;
  /** From the unit of the figures to that of the chart. */
  scale: number;
  /** The axis reaches at least so far. */
  most: number;
}

/** The figures of each chart, which have one unit. */
const CHARTS = [["share_had", "share_wanted"], ["coscheduled"], ["skew_ns_p99"], ["cpus_used"], ["filling"]];

function charts(figures: Figure[]): Chart[] {
  return CHARTS.map((names) => {
    const curves = figures.filter(({ name }) => names.includes(name));
    const isShare = curves[0]?.unit === "share";
    if (isShare) return { curves, unit: " %", scale: 100, most: 100 };
    return curves[0]?.unit === "ns" ? { curves, unit: " µs", scale: 1e-3, most: 0 } : { curves, unit: "", scale: 1, most: 0 };
  });
}

function titleOfChart({ curves, unit }: Chart): string {
  const titles = curves.map(({ title }) => title).join(" and ");
  return `${titleOf({ title: titles })}${unit && `,${unit}`}`;
}

const COLOURS = { light: ["#0b6e62", "#b3541e"], dark: ["#5fd0bf", "#f0a869"] };
/** Sizes below are in letters of the axes, which are as large as those of legends. */
const LETTER_REM = 0.8;
const HEIGHT = 12.5;
const TIMES_HEIGHT = 4.2;
const VALUES_WIDTH = 4.8;
const BETWEEN_LABELS = 1;
/** Between a plot and the labels of its axis: uPlot's tick and gap. */
const TICK_PX = 15;

export class Charts {
  readonly section: HTMLElement;
  private readonly charts: Chart[];
  private readonly places: HTMLElement[];
  private plots: uPlot[] = [];
  private data: Past | undefined;
  private letter_px = 12;
  private readonly sizes: ResizeObserver;

  constructor(figures: Figure[]) {
    this.charts = charts(figures);
    this.places = this.charts.map((chart) => element("figure", { class: "chart" }, element("figcaption", {}, titleOfChart(chart))));
    this.section = element(
      "section",
      { "aria-labelledby": "past-title" },
      element("h2", { id: "past-title" }, "The last minutes"),
      element("div", { class: "charts" }, ...this.places),
    );
    this.sizes = new ResizeObserver(() => this.fit());
    this.sizes.observe(this.section);
    onSchemeChange(() => this.build());
  }

  close(): void {
    this.sizes.disconnect();
    for (const plot of this.plots) plot.destroy();
    this.plots = [];
    this.data = undefined;
  }

  show(data: Past): void {
    this.data = data;
    if (this.plots.length === 0) this.build();
    this.plots.forEach((plot, at) => plot.setData(this.columns(this.charts[at]!)));
    this.places.forEach((place, at) => place.setAttribute("aria-label", this.inWords(this.charts[at]!)));
  }

  private columns(chart: Chart): uPlot.AlignedData {
    const data = this.data!;
    const column = ({ name }: Figure) => (data[name] ?? []).map((value) => (value === null ? null : value * chart.scale));
    return [data.at_s, ...chart.curves.map(column)];
  }

  private inWords(chart: Chart): string {
    const [, ...columns] = this.columns(chart);
    const parts = chart.curves.map((curve, at) => {
      const measured = [...columns[at]!].filter((value): value is number => typeof value === "number");
      if (measured.length === 0) return `${curve.title}: not measured`;
      const [low, high] = [Math.min(...measured), Math.max(...measured)];
      const last = measured[measured.length - 1]!;
      return `${curve.title}: ${last.toFixed(1)} now, between ${low.toFixed(1)} and ${high.toFixed(1)}${chart.unit}`;
    });
    return `${titleOfChart(chart)}. ${parts.join("; ")}.`;
  }

  private build(): void {
    if (!this.data) return;
    for (const plot of this.plots) plot.destroy();
    const colours = palette();
    const curves = colours.dark ? COLOURS.dark : COLOURS.light;
    const letter = (this.letter_px = Math.round(LETTER_REM * fontSize_px()));
    const font = `${letter}px system-ui, sans-serif`;
    const width = measureIn(font);
    const time = new TimeAxis(width, BETWEEN_LABELS * letter);
    const axis = { font, stroke: colours.quiet, grid: { stroke: colours.grid, width: 1 }, ticks: { stroke: colours.grid, width: 1 } };
    const times: uPlot.Axis = {
      ...axis,
      size: TIMES_HEIGHT * letter,
      incrs: STEPS_S,
      space: (_, __, from_s, until_s, wide_px) => time.space(until_s - from_s, wide_px),
      splits: (_, __, from_s, until_s, step_s) => time.ticks(from_s, until_s, step_s),
      values: (_, at_s, __, space_px, step_s) => time.labels(at_s, step_s, space_px / step_s),
    };
    const values: uPlot.Axis = {
      ...axis,
      space: 2.5 * letter,
      size: (_, texts) => Math.max(VALUES_WIDTH * letter, TICK_PX + Math.max(0, ...(texts ?? []).map(width))),
    };
    this.plots = this.charts.map((chart, at) => {
      const options: uPlot.Options = {
        width: this.widthOf(at),
        height: this.height(),
        // For the half of a label that is right of the last tick.
        padding: [null, (time.widest() - BETWEEN_LABELS * letter) / 2, null, null],
        cursor: { drag: { x: false, y: false } },
        legend: { live: true },
        scales: { y: { range: (_, low, high) => [Math.min(0, low ?? 0), Math.max(chart.most, (high ?? 0) * 1.05, 0.1)] } },
        axes: [times, values],
        series: [
          { label: "time", value: (_: uPlot, at_s: number | null) => (at_s == null ? "" : moment(at_s * 1e9)) },
          ...chart.curves.map((curve, colour) => ({
            label: curve.title,
            stroke: curves[colour]!,
            width: 1.75,
            points: { show: false },
            value: (_: uPlot, value: number | null, __: number, at: number | null) => legend(chart, value, at),
          })),
        ],
      };
      return new uPlot(options, this.columns(chart), this.places[at]!);
    });
  }

  private height(): number {
    return Math.round(HEIGHT * this.letter_px);
  }

  private widthOf(at: number): number {
    return Math.max(200, this.places[at]!.clientWidth);
  }

  private fit(): void {
    this.plots.forEach((plot, at) => {
      const width = this.widthOf(at);
      if (width !== plot.width) plot.setSize({ width, height: this.height() });
    });
  }
}

/** The value in a legend: nothing while no moment is pointed at. */
function legend(chart: Chart, value: number | null, at: number | null): string {
  if (at == null) return "";
  return value === null ? "–" : `${value.toFixed(1)}${chart.unit}`;
}
