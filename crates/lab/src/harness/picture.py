"""Draws one picture of the lab: a description on the standard input; the style and the files are arguments."""

import json
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.patches import Patch

COLORS = lambda: plt.rcParams["axes.prop_cycle"].by_key()["color"]


def bars(picture):
    entries = picture["bars"]
    figure, axes = plt.subplots(figsize=(8, 0.8 + 0.32 * len(entries)))
    values = [entry["value"] for entry in entries]
    errors = [
        [max(0.0, e["value"] - e["low"]) for e in entries],
        [max(0.0, e["high"] - e["value"]) for e in entries],
    ]
    rows = range(len(entries))
    axes.barh(rows, values, xerr=errors, color=COLORS()[0], ecolor="0.3", capsize=2, height=0.7)
    axes.set_yticks(rows, [entry["name"] for entry in entries])
    axes.invert_yaxis()
    axes.set_xlim(left=0)
    axes.set_xlabel(picture["label"])
    axes.xaxis.set_major_formatter(matplotlib.ticker.FuncFormatter(lambda x, _: f"{x:,.10g}"))
    axes.set_title(picture["title"], wrap=True)
    return figure


def lines(picture):
    """A figure over a quantity; bars at the points are intervals, cut off where they leave
    the picture, and pale dots the single runs."""
    figure, axes = plt.subplots()
    for line in picture["lines"]:
        points = sorted(line["points"])
        x, y = [p[0] for p in points], [p[1] for p in points]
        errors = [[max(0.0, p[1] - p[2]) for p in points], [max(0.0, p[3] - p[1]) for p in points]]
        drawn = axes.errorbar(
            x, y, yerr=errors, marker="o", markersize=3, capsize=2, elinewidth=0.7, label=line["name"]
        )
        singles = line["samples"]
        axes.scatter(
            [s[0] for s in singles],
            [s[1] for s in singles],
            s=8,
            alpha=0.5,
            color=drawn[0].get_color(),
            zorder=3,
        )
    if picture["log_x"]:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(matplotlib.ticker.FuncFormatter(lambda x, _: f"{x:g}"))
    else:
        axes.xaxis.set_major_locator(matplotlib.ticker.MaxNLocator(integer=True))
    # A few samples can have an interval many times as wide as everything that was measured.
    means = [p[1] for line in picture["lines"] for p in line["points"] + line["samples"]] or [0.0]
    low, high = min(0.0, *means, 0.0), max(*means, 0.0)
    margin = 0.5 * (high - low) or 1.0
    bottom, top = axes.get_ylim()
    axes.set_ylim(max(min(bottom, 0.0), low - (margin if low < 0 else 0.0)), min(top, high + margin))
    if picture["level"] is not None:
        axes.axhline(picture["level"], color="0.6", linewidth=0.8, zorder=0)
    if picture["mark"] is not None:
        axes.axvline(picture["mark"], color="0.6", linewidth=0.8, linestyle=":", zorder=0)
    axes.set_xlabel(picture["x"])
    axes.set_ylabel(picture["y"])
    axes.set_title(picture["title"], wrap=True)
    axes.legend()
    return figure


def timeline(picture):
    """One panel a condition, one lane a CPU, one colour a copy; grey is the rest of the machine."""
    panels = picture["panels"]
    lanes = sum(len(panel["cpus"]) for panel in panels)
    figure, all_axes = plt.subplots(
        len(panels), 1, sharex=True, squeeze=False, figsize=(9, 1.4 + 0.42 * lanes)
    )
    colors = COLORS()
    copies = picture["copies"]
    for axes, panel in zip(all_axes[:, 0], panels):
        for lane, spans in enumerate(panel["cpus"]):
            for copy in range(-1, len(copies)):
                pieces = [(start, length) for start, length, whose in spans if whose == copy]
                color = "0.75" if copy < 0 else colors[copy % len(colors)]
                axes.broken_barh(pieces, (lane - 0.42, 0.84), facecolors=color, linewidth=0)
        axes.set_yticks(range(len(panel["cpus"])), [f"CPU {n}" for n in range(len(panel["cpus"]))])
        axes.set_ylim(len(panel["cpus"]) - 0.5, -0.5)
        axes.set_xlim(0, picture["length_ms"])
        axes.set_title(panel["name"])
        axes.tick_params(axis="y", length=0)
    all_axes[-1, 0].set_xlabel("ms")
    handles = [Patch(color=colors[n % len(colors)], label=name) for n, name in enumerate(copies)]
    handles.append(Patch(color="0.75", label="other"))
    figure.suptitle(picture["title"], x=0.01, ha="left", fontsize=10)
    figure.legend(handles=handles, loc="upper right", ncols=len(handles))
    figure.tight_layout(rect=(0, 0, 1, 0.97))
    return figure


def main():
    style, *paths = sys.argv[1:]
    plt.style.use(style)
    picture = json.load(sys.stdin)
    figure = {"bars": bars, "lines": lines, "timeline": timeline}[picture["kind"]](picture)
    for path in paths:
        figure.savefig(path, metadata={"Date": None} if path.endswith(".svg") else None)


main()
