"""The curves of a run: training loss above, validation below, over the minutes used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from biqe.evaluate import pictures
from biqe.evaluate.pictures import BLUE, SOFT, printable
from biqe.models.store import write_whole
from biqe.train.run import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(run: Run) -> None:
    """Write RUN/run.svg from the trace; nothing where pictures cannot be drawn."""
    if pictures.installed():
        data = pictures.render(lambda: curves(run), "svg", f"training curves of {run.folder.resolve().name}")
        write_whole(run.folder / "run.svg", data.decode())


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
