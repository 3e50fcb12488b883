// The last minutes of one job as curves.

import uPlot from "uplot";

import { onSchemeChange, palette } from "./colours.js";
import { element } from "./dom.js";
import type { Past } from "./wire.js";

interface Curve {
  label: string;
  of: keyof Omit<Past, "at_s">;
  /** Among the colours below. */
  colour: number;
  scale?: number;
}

interface Chart {
  title: string;
  unit: string;
  curves: Curve[];
  /** The axis reaches at least so far. */
  most?: number;
}

const CHARTS: Chart[] = [
  {
    title: "Share of time in a slot",
    unit: "%",
    most: 100,
    curves: [
      { label: "had", of: "share_had", colour: 0, scale: 100 },
      { label: "wanted", of: "share_wanted", colour: 1, scale: 100 },
    ],
  },
  { title: "Together in its slots", unit: "%", most: 100, curves: [{ label: "together", of: "coscheduled", colour: 0, scale: 100 }] },
  { title: "Skew, p99", unit: "µs", curves: [{ label: "skew", of: "skew_us_p99", colour: 2 }] },
  { title: "CPUs used", unit: "", curves: [{ label: "used", of: "cpus_used", colour: 0 }] },
  { title: "Filling, share of its CPU time", unit: "%", most: 100, curves: [{ label: "filling", of: "filling", colour: 1, scale: 100 }] },
];

const COLOURS = { light: ["#0b6e62", "#b3541e", "#4a4fb5"], dark: ["#5fd0bf", "#f0a869", "#a5aef5"] };
const HEIGHT = 150;

export class Charts {
  readonly section: HTMLElement;
  private readonly places: HTMLElement[];
  private plots: uPlot[] = [];
  private data: Past | undefined;
  private readonly sizes: ResizeObserver;

  constructor() {
    this.places = CHARTS.map((chart) =>
      element("figure", { class: "chart" }, element("figcaption", {}, `${chart.title}${chart.unit ? `, ${chart.unit}` : ""}`)),
    );
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
    this.plots.forEach((plot, at) => plot.setData(this.columns(CHARTS[at]!)));
    this.places.forEach((place, at) => place.setAttribute("aria-label", this.inWords(CHARTS[at]!)));
  }

  private columns(chart: Chart): uPlot.AlignedData {
    const data = this.data!;
    const column = (curve: Curve) =>
      data[curve.of].map((value) => (value === null ? null : value * (curve.scale ?? 1)));
    return [data.at_s, ...chart.curves.map(column)];
  }

  private inWords(chart: Chart): string {
    const [, ...columns] = this.columns(chart);
    const parts = chart.curves.map((curve, at) => {
      const measured = [...columns[at]!].filter((value): value is number => typeof value === "number");
      if (measured.length === 0) return `${curve.label}: not measured`;
      const [low, high] = [Math.min(...measured), Math.max(...measured)];
      const last = measured[measured.length - 1]!;
      return `${curve.label}: ${last.toFixed(1)} now, between ${low.toFixed(1)} and ${high.toFixed(1)} ${chart.unit}`.trimEnd();
    });
    return `${chart.title}. ${parts.join("; ")}.`;
  }

  private build(): void {
    if (!this.data) return;
    for (const plot of this.plots) plot.destroy();
    const colours = palette();
    const curves = colours.dark ? COLOURS.dark : COLOURS.light;
    const axis = { stroke: colours.quiet, grid: { stroke: colours.grid, width: 1 }, ticks: { stroke: colours.grid, width: 1 } };
    this.plots = CHARTS.map((chart, at) => {
      const options: uPlot.Options = {
        width: this.widthOf(at),
        height: HEIGHT,
        cursor: { drag: { x: false, y: false } },
        legend: { live: true },
        scales: { y: { range: (_, low, high) => [Math.min(0, low ?? 0), Math.max(chart.most ?? 0, (high ?? 0) * 1.05, 0.1)] } },
        axes: [axis, { ...axis, size: 58 }],
        series: [
          { label: "time" },
          ...chart.curves.map((curve) => ({
            label: curve.label,
            stroke: curves[curve.colour]!,
            width: 1.75,
            points: { show: false },
            value: (_: uPlot, value: number | null) => (value === null ? "–" : `${value.toFixed(1)} ${chart.unit}`.trimEnd()),
          })),
        ],
      };
      return new uPlot(options, this.columns(chart), this.places[at]!);
    });
  }

  private widthOf(at: number): number {
    return Math.max(200, this.places[at]!.clientWidth);
  }

  private fit(): void {
    this.plots.forEach((plot, at) => {
      const width = this.widthOf(at);
      if (width !== plot.width) plot.setSize({ width, height: HEIGHT });
    });
  }
}
