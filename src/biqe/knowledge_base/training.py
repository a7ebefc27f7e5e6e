"""``biqe.train(graph)``: from a graph to a knowledge base that predicts, in one call."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

from biqe.errors import InvalidOption, RunFailed
from biqe.graph.knowledge_graph import Graph, counted
from biqe.graph.words import escaped
from biqe.knowledge_base import KnowledgeBase, open

if TYPE_CHECKING:
    from biqe.training.loop import Result

RUNS = Path("runs")
"""Where runs are kept unless their folder is given."""
MINUTES = 10.0


def train(
    graph: Graph | str | os.PathLike[str],
    *,
    minutes: float = MINUTES,
    out: str | os.PathLike[str] | None = None,
    model: str | None = None,
    seed: int = 0,
    threads: int = 0,
    show: bool = True,
) -> KnowledgeBase:
    """Learn from a graph for some minutes, and open what was learnt.

    ``graph`` is a ``Graph``, a graph folder or ``atlas``. Some of its facts are hidden from training; on these the
    probabilities are calibrated and the ways to answer compared. The run is kept in the new folder ``out`` (left out:
    in ``runs/``, by the name of the graph), with a copy of a graph that was given as such; ``biqe.open(folder)`` opens
    it again. ``model`` is one that ``biqe models`` lists, ``threads`` of 0 takes all cores, and ``show=False`` hides
    the progress bar.

    Ctrl-C, or the stop button of a notebook, ends the training and keeps what was learnt: the knowledge base is
    returned as after a shorter run. A second one stops at once.

    >>> import tempfile
    >>> graph = Graph.from_triples((f"a{n}", "likes", f"b{n % 30 + step}") for n in range(60) for step in (0, 1))
    >>> with tempfile.TemporaryDirectory() as place:
    ...     kb = train(graph, minutes=0.01, out=f"{place}/run", model="cqd", threads=1, show=False)
    ...     len(kb.ask("SELECT ?who { :a0 :likes ?who }", top=3).predicted)
    3
    """
    if not isinstance(minutes, (int, float)) or not 0 < minutes < float("inf"):
        raise InvalidOption(f"minutes must be a positive number. Got {minutes!r}")
    if not isinstance(graph, (Graph, str, os.PathLike)):
        raise InvalidOption(
            f"biqe.train takes a Graph, a graph folder or 'atlas'. Got {type(graph).__name__}",
            hint="biqe.Graph.from_pandas, from_triples, from_rdflib, from_pykeen and from_file make a Graph",
        )
    name = "graph" if isinstance(graph, Graph) else Path(graph).name
    with progress(show) as display, _threads_kept():
        folder = _new_folder(name) if out is None else Path(out)
        try:
            result = _run(graph, folder, minutes, model, seed, threads, display)
        except KeyboardInterrupt:
            if not (folder / "model" / "manifest.json").is_file():
                raise
            display.say("stopped before probabilities were calibrated")
        else:
            said = f"{folder}: {result.reason} after {counted(result.place.step, 'step')}"
            display.say(said if out is not None else f"{said}; open it again with biqe.open({str(folder)!r})")
            if result.weighed is not None:
                display.say(result.weighed.sentence())
    return open(folder)


def _run(
    graph: Graph | str | os.PathLike[str],
    folder: Path,
    minutes: float,
    model: str | None,
    seed: int,
    threads: int,
    display: Progress,
) -> Result:
    from biqe.training import session
    from biqe.training.adapt import adapted
    from biqe.training.run import GRAPH, check_free

    check_free(folder)
    if isinstance(graph, Graph):
        graph.save(folder / GRAPH, force=True)
        place = str(folder / GRAPH)
    else:
        place = os.fspath(graph)
    try:
        model, links_minutes = session.choose(model, place, {"minutes": minutes, "epochs": None})
        options, settings = adapted(model, session.triples_of(place), minutes)
        settings |= {"minutes": minutes, "links_minutes": links_minutes, "seed": seed, "threads": threads}
        return session.start(
            place,
            folder,
            train_config=session.settings(model, **settings),
            model=model,
            model_options=options,
            keep_interrupted=True,
            listener=display,
            note=lambda text: display.say(f"note: {text}"),
        )
    except BaseException:
        # A run that was refused leaves nothing behind.
        if not (folder / "run.json").exists():
            if isinstance(graph, Graph):
                shutil.rmtree(folder / GRAPH, ignore_errors=True)
            with suppress(OSError):  # unless it was there before, with something in it
                folder.rmdir()
        raise


def _new_folder(name: str) -> Path:
    """A folder in RUNS that is free, made now, so that two programs do not take the same."""
    number = 1
    while True:
        folder = RUNS / (name if number == 1 else f"{name}-{number}")
        try:
            folder.mkdir(parents=True)
            return folder
        except FileExistsError:
            number += 1
        except OSError as error:
            raise RunFailed(
                f"cannot write to {folder}: {error.strerror or error}", hint="give another folder with out="
            ) from error


@contextmanager
def _threads_kept() -> Iterator[None]:
    """A run sets how many threads torch uses; afterwards that is as the program had it."""
    # Waiting threads sleep instead of spinning (docs/decisions/0008); torch reads it when it is loaded first.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    import torch

    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)


# Progress


class Progress(Protocol):
    """A listener of a run that also shows notes, and a last line."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def stepped(self, fraction: float, facts: dict[str, Any]) -> None: ...
    def validated(self, facts: dict[str, Any]) -> None: ...
    def say(self, text: str) -> None: ...


def progress(wanted: bool) -> Progress:
    """What suits the place where the program runs; silence unless it is ``wanted``."""
    if not wanted:
        return Silent()
    if in_notebook():
        return NotebookBar()
    return TerminalBar() if sys.stderr.isatty() else Lines()


def in_notebook() -> bool:
    """Whether output goes to a notebook, which shows HTML."""
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None else None
    return type(shell).__name__ == "ZMQInteractiveShell"


def status(facts: dict[str, Any]) -> str:
    """What is told about the steps since the last report."""
    return f"loss {facts['loss']:.3f}, {facts['queries_per_second']:,.0f} queries/s"


class Silent:
    """Shows nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None: ...

    def stepped(self, fraction: float, facts: dict[str, Any]) -> None:
        """Some steps were taken."""

    def validated(self, facts: dict[str, Any]) -> None:
        """The model was validated."""

    def say(self, text: str) -> None:
        """Something that a user should read."""


class Lines(Silent):
    """Notes and the last line alone, on standard error: a log stays short."""

    def say(self, text: str) -> None:
        """Print a line."""
        print(text, file=sys.stderr, flush=True)


class TerminalBar(Silent):
    """A bar on standard error."""

    def __enter__(self) -> Self:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

        console = Console(stderr=True, markup=False, emoji=False, highlight=False)
        columns = (
            BarColumn(bar_width=24),
            TaskProgressColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
        )
        self._bar = Progress(TextColumn("training"), *columns, console=console, transient=True)
        self._bar.start()
        self._task = self._bar.add_task("", total=1.0, note="")
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def stepped(self, fraction: float, facts: dict[str, Any]) -> None:
        """Move the bar."""
        self._bar.update(self._task, completed=fraction, note=status(facts))

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        self._bar.console.print(text, soft_wrap=True)


class NotebookBar(Silent):
    """A bar below the cell, of plain HTML, so that nothing has to be installed for it."""

    def __enter__(self) -> Self:
        from IPython.display import HTML, display

        self._html, self._said = HTML, list[str]()
        self._fraction, self._note = 0.0, "training"
        self._handle = display(HTML(self._shown()), display_id=True)
        return self

    def __exit__(self, *error: object) -> None:
        self._fraction = 1.0
        self._update()

    def stepped(self, fraction: float, facts: dict[str, Any]) -> None:
        """Move the bar."""
        self._fraction, self._note = fraction, status(facts)
        self._update()

    def say(self, text: str) -> None:
        """Show a line below the bar, which stays."""
        self._said.append(text)
        self._update()

    def _update(self) -> None:
        self._handle.update(self._html(self._shown()))

    def _shown(self) -> str:
        bar = f'<progress value="{self._fraction:.3f}" max="1"></progress> {escaped(self._note)}'
        return "<br>".join([*([bar] if self._fraction < 1 else []), *map(escaped, self._said)])
