"""Draws one record: a description on the standard input; the style and the files are arguments."""

import json
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.collections import PatchCollection
from matplotlib.patches import Patch, Rectangle

style, *paths = sys.argv[1:]
plt.style.use(style)
record = json.load(sys.stdin)
cpus = record["cpus"]
colors = [plt.get_cmap("tab10")(number) for number in range(10)]
order = {int(job): number for number, job in enumerate(sorted(record["jobs"], key=int))}
color = lambda job: colors[order.get(job, 0) % 10]

# None of the jobs' colors.
PHASES = {"late": "#b0006d", "lower": "#f0b400", "raise": "#00807a"}


def stacked(switches):
    """The phases one after the other: for each where its bars begin and how long they are, in µs."""
    for phase, name in enumerate(PHASES):
        yield name, [(sum(phases[:phase]), phases[phase]) for _, _, phases in switches]


height = 0.9 * len(cpus)
figure, (axes, below) = plt.subplots(
    2, 1, sharex=True, figsize=(10, 2.7 + height), gridspec_kw={"height_ratios": (height, 1.2)}, layout="constrained"
)
for lane, lanes in enumerate(cpus):
    for start, end, job in lanes["slots"]:
        start, end = max(0, start), min(record["length_ms"], end)
        axes.broken_barh([(start, end - start)], (lane + 0.55, 0.25), color=color(job), alpha=0.45, linewidth=0)
    for role, height in [("other", 0.45), ("noise", 0.45), ("filling", 0.25), ("in slot", 0.45)]:
        stays = [stay for stay in lanes["ran"] if stay[3] == role]
        shades = [color(job) if job is not None else "0.15" if role == "noise" else "0.75" for _, _, job, _ in stays]
        axes.broken_barh([(s[0], s[1] - s[0]) for s in stays], (lane + 0.05, height), color=shades, linewidth=0)
lane_of = record["switches"]
for name, bars in stacked(lane_of):
    # To scale: a switch of 50 µs is seen as soon as it is looked at closely.
    rectangles = [
        Rectangle((ms + begin / 1e3, lane + 0.82), us / 1e3, 0.12) for (lane, ms, _), (begin, us) in zip(lane_of, bars)
    ]
    axes.add_collection(PatchCollection(rectangles, color=PHASES[name], linewidth=0, gid=name))
axes.set_xlim(0, record["length_ms"])
axes.set_ylim(len(cpus), 0)
axes.set_yticks([lane + 0.4 for lane in range(len(cpus))], [f"CPU {lanes['cpu']}" for lanes in cpus])
axes.set_title("for each CPU who ran, above it the slots as planned, and their switches")
axes.invert_yaxis()
names = [(color(int(job)), name) for job, name in sorted(record["jobs"].items(), key=lambda i: int(i[0]))][:8]
entries = names + [("0.15", "others, in a slot"), ("0.75", "others")]
legend = axes.legend(
    [Patch(color=shade) for shade, _ in entries], ["-"] * len(entries), loc="lower center", bbox_to_anchor=(0.5, 1.1), ncol=5
)
for text, (_, name) in zip(legend.get_texts(), entries):
    # As they are: matplotlib would typeset what stands between dollars, and leave out what begins
    # with _.
    text.set_parse_math(False)
    text.set_text(name)

slowest = {}
for switch in record["switches"]:
    _, ms, phases = switch
    if ms not in slowest or sum(phases) > sum(slowest[ms][2]):
        slowest[ms] = switch
slowest = list(slowest.values())
# As wide as is seen, for they are far narrower than the time between them.
wide = record["length_ms"] / 500
for name, bars in stacked(slowest):
    rectangles = [Rectangle((ms - wide / 2, begin), wide, us) for (_, ms, _), (begin, us) in zip(slowest, bars)]
    below.add_collection(PatchCollection(rectangles, color=PHASES[name], linewidth=0, gid=f"{name}-slowest"))
below.set_ylim(0, 1.05 * max((sum(phases) for _, _, phases in slowest), default=1))
below.set_ylabel("µs")
below.set_title("the slowest switch of each edge, from when it was asked for")
below.set_xlabel("ms")
below.legend(handles=[Patch(color=shade, label=name) for name, shade in PHASES.items()], loc="upper left", bbox_to_anchor=(1, 1))
for path in paths:
    figure.savefig(path)
