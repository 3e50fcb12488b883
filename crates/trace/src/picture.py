"""Draws one record: a description on the standard input; the style and the files are arguments."""

import json
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.patches import Patch

style, *paths = sys.argv[1:]
plt.style.use(style)
record = json.load(sys.stdin)
cpus = record["cpus"]
colors = [plt.get_cmap("tab10")(number) for number in range(10)]
order = {int(job): number for number, job in enumerate(sorted(record["jobs"], key=int))}
color = lambda job: colors[order.get(job, 0) % 10]

figure, axes = plt.subplots(figsize=(10, 1.2 + 0.9 * len(cpus)))
for cpu, lanes in enumerate(cpus):
    for start, end, job in lanes["slots"]:
        start, end = max(0, start), min(record["length_ms"], end)
        axes.broken_barh([(start, end - start)], (cpu + 0.55, 0.25), color=color(job), alpha=0.45, linewidth=0)
    for role, height in [("other", 0.45), ("noise", 0.45), ("filling", 0.25), ("in slot", 0.45)]:
        stays = [stay for stay in lanes["ran"] if stay[3] == role]
        shades = [color(job) if job is not None else "0.15" if role == "noise" else "0.75" for _, _, job, _ in stays]
        axes.broken_barh([(s[0], s[1] - s[0]) for s in stays], (cpu + 0.05, height), color=shades, linewidth=0)
axes.set_xlim(0, record["length_ms"])
axes.set_ylim(len(cpus), 0)
axes.set_yticks([cpu + 0.4 for cpu in range(len(cpus))], [f"CPU {cpu}" for cpu in range(len(cpus))])
axes.set_xlabel("ms; for each CPU who ran, above it the slots as planned")
axes.invert_yaxis()
names = [Patch(color=color(int(job)), label=name) for job, name in sorted(record["jobs"].items(), key=lambda i: int(i[0]))]
rest = [Patch(color="0.15", label="others, in a slot"), Patch(color="0.75", label="others")]
axes.legend(handles=names[:8] + rest, loc="upper center", bbox_to_anchor=(0.5, 1.25), ncol=5)
for path in paths:
    figure.savefig(path)
