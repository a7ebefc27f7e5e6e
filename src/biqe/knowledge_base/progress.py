"""How far a training run is: a bar in a terminal, one in a notebook, or nothing where nobody looks."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any, Protocol, Self

from biqe.graph.visible import escaped


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
