"""The pictures of a run: its curves, and whether its probabilities mean what they say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from biqe.evaluate import pictures
from biqe.evaluate.pictures import BLUE, ORANGE, PLAIN, SOFT, printable
from biqe.links.knowledge import Record
from biqe.models.store import write_whole
from biqe.training.run import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(run: Run) -> None:
    """Write RUN/run.svg from the trace; nothing where pictures cannot be drawn."""
    if pictures.installed():
        data = pictures.render(lambda: curves(run), "svg", f"training curves of {run.folder.resolve().name}")
        write_whole(run.folder / "run.svg", data.decode())


def draw_probabilities(run: Run, record: Record) -> None:
    """Write RUN/probabilities.svg, a reliability diagram of held-out facts; nothing where there are no probabilities or
    pictures cannot be drawn."""
    if record.calibrated and pictures.installed():
        data = pictures.render(lambda: diagram(record), "svg", f"probabilities of {run.folder.resolve().name}")
        write_whole(run.folder / "probabilities.svg", data.decode())


def diagram(record: Record) -> Figure:
    """Bars are the share of links that are true, lines the mean probability; where both are level, probabilities mean
    what they say. Below, how many links each bin has."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.2, 4.6), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, gridspec_kw={"height_ratios": [4, 1]})
    width = 1 / len(record.bins)
    above.plot([0, 1], [0, 1], color=SOFT, linewidth=0.8, linestyle=(0, (4, 4)), label="perfect")
    some = [(number * width, *each) for number, each in enumerate(record.bins) if each[0]]
    edges, counts, said, true = zip(*some, strict=True)
    above.bar(edges, true, width, align="edge", color=BLUE, label="share true")
    above.hlines(said, edges, [edge + width for edge in edges], color=ORANGE, linewidth=2, label="mean probability")
    above.set(xlim=(0, 1), ylim=(0, 1), ylabel="share of true links")
    above.grid(axis="y")
    above.set_title(f"links of held-out questions\nexpected calibration error {record.error:.3f}", fontsize=9)
    above.legend(loc="upper left", fontsize=8)
    below.bar(edges, counts, width, align="edge", color=PLAIN, edgecolor=SOFT, linewidth=0.5)
    below.set_yscale("symlog", linthresh=1)
    below.set_yticks([10**power for power in (0, 2, 4, 6) if 10**power <= 10 * max(counts)])
    below.yaxis.set_major_formatter(lambda count, _: f"{count:,.0f}")
    below.minorticks_off()
    below.set(xlabel="probability", ylabel="links")
    return figure


def curves(run: Run) -> Figure:
    """Loss and validation of a run, to be drawn by ``pictures.render`` or ``pictures.save``."""
    from matplotlib.figure import Figure

    events = run.trace()
    loss = [(event["seconds"] / 60, event["loss"]) for event in events if event.get("event") == "steps"]
    validations = [event for event in events if event.get("event") == "validation"]
    metric = "auc" if any("auc" in event for event in validations) else "mrr"
    found = [(event["seconds"] / 60, event[metric]) for event in validations if metric in event]

    figure = Figure(figsize=(7.5, 5.5), layout="constrained")
    figure.suptitle(printable(f"{run.record['model']}, {run.folder.resolve().name}"), x=0.02, ha="left", weight="bold")
    above, below = figure.subplots(2, 1, sharex=True)
    for axes, points, title, marker in (
        (above, loss, "training loss", ""),
        (below, found, f"validation {metric.upper()} (nothing here knows a test triple)", "o"),
    ):
        axes.set_title(title, fontsize=10)
        axes.grid(axis="y")
        if points:
            axes.plot(*zip(*points, strict=True), color=BLUE, linewidth=1.5, marker=marker, markersize=4)
        else:
            axes.text(0.5, 0.5, "nothing yet", transform=axes.transAxes, ha="center", color=SOFT)
    below.set_xlabel("minutes")
    return figure
