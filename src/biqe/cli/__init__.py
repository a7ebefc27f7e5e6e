"""The command table and the entry point ``biqe``.

A command's module is imported when the command runs or when its own ``--help`` is asked for, so that
``biqe --help`` is instant and loads neither torch nor numba nor an RDF library. A new command is one line
in COMMANDS and one function with typer options; nothing else is edited.
"""

from __future__ import annotations

import difflib
import errno
import importlib
import os
import shutil
import signal
import sys
import textwrap
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from biqe.errors import BadLine, BiqeError, NotPredictableYet, SparqlSyntax, UnsupportedQuery, VocabularyMismatch


class Entry(NamedTuple):
    """Where a command lives, and the line that ``biqe --help`` shows for it."""

    target: str
    """``module:function``."""
    help: str


COMMANDS: dict[str, Entry] = {
    "try": Entry("biqe.cli.try_files:try_files", "From files to found facts and an open page, in one command."),
    "import": Entry("biqe.cli.import_graph:read", "Read graph files (RDF, TSV, CSV, Parquet) into a graph folder."),
    "stats": Entry("biqe.cli.graph:stats", "Show counts, degrees and splits of a graph."),
    "schema": Entry("biqe.cli.graph:schema", "List the relations of a graph, and what each joins."),
    "find": Entry("biqe.cli.graph:find", "Find entities and relations by name or label."),
    "mine": Entry("biqe.cli.mine:mine", "Mine training and evaluation queries from a graph."),
    "train": Entry("biqe.cli.train:train", "Train a model on a graph, or resume a run."),
    "evaluate": Entry("biqe.cli.evaluate:evaluate", "Measure how well a model ranks true answers: MRR, HITS@k."),
    "calibrate": Entry("biqe.cli.calibrate:calibrate", "Fit a run's probabilities again on what it held out."),
    "ask": Entry("biqe.cli.ask:ask", "Answer a SPARQL query: what is known and what is predicted."),
    "explain": Entry("biqe.cli.explain:explain", "Explain one row of an answer, as text, JSON or a picture."),
    "suggest": Entry("biqe.cli.suggest:suggest", "List the likeliest links that a graph is missing; review them."),
    "serve": Entry("biqe.cli.serve:serve", "Serve a SPARQL endpoint and a web page."),
    "backup": Entry("biqe.cli.backup:backup", "Copy a graph that changes, also while it is served."),
    "restore": Entry("biqe.cli.backup:restore", "Write a live graph anew: a back-up, an old or a damaged one."),
    "mcp": Entry("biqe.cli.mcp:mcp", "Offer a graph and its model to language-model agents."),
    "models": Entry("biqe.cli.catalogue:models", "List the models, and what each can answer."),
    "benchmarks": Entry("biqe.cli.catalogue:benchmarks", "List the benchmarks, and how to get their data."),
    "reproduce": Entry("biqe.cli.reproduce:reproduce", "Reproduce a table of the paper, beside the published numbers."),
    "results": Entry("biqe.cli.reproduce:results_show", "Show all results, beside the published numbers."),
    "config": Entry("biqe.cli.config:config", "Show the settings of a run, or change how its model solves."),
    "doctor": Entry("biqe.cli.doctor:doctor", "Check the installation or a graph; plan a training run."),
}

HELP = """Ask a knowledge graph a SPARQL query; get the answers it holds and the answers it is missing.

Try it on the embedded graph of rivers, cities and countries:

    biqe ask atlas 'SELECT ?city WHERE { ?city :located_on :Rhine }'

With a graph of your own, all at once:

    biqe try films.csv

Or step by step:

    biqe import films.csv                       # makes kg/films
    biqe train kg/films --minutes 30            # makes runs/films
    biqe ask runs/films 'SELECT ?x WHERE { ... }'
    biqe suggest runs/films
    biqe serve runs/films
"""

EPILOG = (
    "'biqe COMMAND --help' explains a command, with examples. Results go to standard output, progress and errors to "
    "standard error; '--json' prints one JSON document. Exit codes: 0 done, 2 bad input, 1 a fault of biqe, "
    "130 stopped by Ctrl-C, 143 stopped by SIGTERM."
)


class Command(TyperCommand):
    """A command whose indented help paragraphs are printed as they stand, so that examples can be copied."""

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        """Write the help text, examples unwrapped."""
        self.help = keep_examples(self.help)
        super().format_help_text(ctx, formatter)


class CommandTable(TyperGroup):
    """A group whose commands are imported one at a time, on demand."""

    command_class = Command

    def list_commands(self, ctx: Any) -> list[str]:
        """Names of all commands, in the order in which a new user needs them."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command, imported on first use; None if there is no such command."""
        if cmd_name not in COMMANDS:
            return None
        if cmd_name not in self.commands:
            module, function = COMMANDS[cmd_name].target.split(":")
            single = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
            single.command(cmd_name, cls=Command)(getattr(importlib.import_module(module), function))
            self.commands[cmd_name] = typer.main.get_command(single)
        return self.commands[cmd_name]

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that was typed; a name that is not known is refused with the nearest one that is."""
        if args[0] not in COMMANDS and (near := difflib.get_close_matches(args[0], COMMANDS, 1)):
            ctx.fail(f"There is no command {args[0]!r}. Did you mean {near[0]!r}?")
        return super().resolve_command(ctx, args)

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        """Write the help text, examples unwrapped."""
        self.help = keep_examples(self.help)
        super().format_help_text(ctx, formatter)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the table of commands from their one-line helps, without importing any of them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in COMMANDS.items()])


def keep_examples(help_text: str | None) -> str | None:
    r"""Help text with a ``\b`` mark before each paragraph of indented lines, which keeps it from being re-wrapped."""
    if help_text is None:
        return None
    paragraphs = help_text.split("\n\n")
    return "\n\n".join(
        f"\b\n{paragraph}"
        if paragraph.strip() and all(line[:1] == " " for line in paragraph.splitlines())
        else paragraph
        for paragraph in paragraphs
    )


app = typer.Typer(
    cls=CommandTable,
    help=HELP,
    epilog=EPILOG,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(asked: bool) -> None:
    if asked:
        from biqe import __version__

        print(f"biqe {__version__}")
        raise typer.Exit()


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Options that stand before the command; the help text is HELP."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code. Errors are printed; none is raised.

    0 done, 1 a fault of biqe itself, 2 bad input, 130 interrupted (143 by SIGTERM), 141 broken output pipe. A traceback
    is shown only with BIQE_DEBUG=1.
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    # Waiting threads of torch sleep instead of spinning, which would take time from other threads on a busy machine
    # (docs/decisions/0008). Set before torch is loaded, which reads it.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    _prepare_streams()
    try:
        with _interrupts_come_again():
            code = _run(arguments)
        sys.stdout.flush()
        return code
    except typer.TyperException as error:  # unknown command or option, missing or malformed value
        _show(error.format_message(), _usage_hint(error))
        return 2
    except BiqeError as error:
        _show(f"{type(error).__name__}: {error.message}", error.hint or _hint_by_kind(error, arguments))
        return 2
    except (KeyboardInterrupt, typer.Abort):
        _show("interrupted", None, kind="stopped")
        return 130
    except BrokenPipeError:
        # Python flushes standard output once more on exit: give it somewhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:
        _debug()
        _show(_os_error(error), _os_hint(error) or _help_hint(_command_of(arguments)))
        return 2
    except MemoryError:
        _debug()
        _show("out of memory", "use a smaller graph, a smaller batch or a machine with more memory")
        return 2
    except Exception as error:
        _debug()
        first_line = (str(error).splitlines() or [""])[0]
        _show(
            f"internal error: {type(error).__name__}: {first_line}. This is a fault of biqe, not of your input; "
            "please report it with the command that you ran.",
            "BIQE_DEBUG=1 in front of the same command shows where it happened",
        )
        return 1


def _prepare_streams() -> None:
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # the caller closed it
            setattr(sys, name, open(os.devnull, "w"))
        # A name that the terminal's encoding lacks must not end the program in the middle of an answer.
        if hasattr(getattr(sys, name), "reconfigure"):
            getattr(sys, name).reconfigure(errors="backslashreplace")


@contextmanager
def _interrupts_come_again() -> Iterator[None]:
    """Repeat a Ctrl-C that was lost, shortly after.

    In some places, such as callbacks of numba's compiler, Python cannot raise KeyboardInterrupt. It reports it to
    ``sys.unraisablehook`` and continues.
    """
    before, timers = sys.unraisablehook, list[threading.Timer]()

    def again() -> None:
        timers.append(threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)))
        timers[-1].daemon = True
        timers[-1].start()

    def hook(lost: Any) -> None:
        if not issubclass(lost.exc_type, KeyboardInterrupt):
            before(lost)
            return
        try:
            again()
        except KeyboardInterrupt:  # on a busy machine it may arrive already here, where nothing can be raised
            again()

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = before
        for timer in timers:
            timer.cancel()


def _run(arguments: list[str]) -> int:
    table = typer.main.get_command(app)
    try:
        with table.make_context("biqe", arguments) as context:
            table.invoke(context)
    except typer.Exit as exit_:  # --help and --version end so, and commands that choose their exit code
        return exit_.exit_code
    return 0


def _show(message: str, hint: str | None, *, kind: str = "error") -> None:
    """Print the message and the hint on standard error, each wrapped at the terminal's width."""
    width = max(40, shutil.get_terminal_size((80, 24)).columns)
    coloured = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    for label, text, colour in ((kind, message, "red"), ("hint", hint, "cyan")):
        if text is None:
            continue
        first, *more = text.splitlines() or [""]
        lines = _wrap(f"{label}: {first}", width) + [part for line in more for part in _wrap(line, width)]
        if coloured:
            lines[0] = typer.style(f"{label}:", fg=colour, bold=True) + lines[0][len(label) + 1 :]
        with suppress(OSError):  # standard error may be full or closed; the exit code still tells
            print("\n".join(lines), file=sys.stderr, flush=True)


def _wrap(line: str, width: int) -> list[str]:
    # Long names and paths are not broken, so that they can be copied.
    return textwrap.wrap(line, width, break_long_words=False, break_on_hyphens=False) or [""]


def _usage_hint(error: typer.TyperException) -> str:
    context = getattr(error, "ctx", None)
    return _help_hint(context.command_path if context is not None else "biqe")


def _help_hint(command: str) -> str:
    return f"'{command} --help' shows what is allowed, with examples"


def _command_of(arguments: Sequence[str]) -> str:
    """The command among the arguments, as it is typed."""
    return next((f"biqe {word}" for word in arguments if word in COMMANDS), "biqe")


_HINTS: dict[type[BiqeError], str] = {
    BadLine: "correct that line, then run the command again",
    SparqlSyntax: "docs/concepts/sparql.md has the supported subset, with examples",
    NotPredictableYet: "continue the model on today's graph: biqe train --continue RUN --graph GRAPH --out NEW",
    UnsupportedQuery: "'biqe models' lists what each model can answer",
    VocabularyMismatch: "a model, its query sets and its runs belong to the graph folder that they were made from",
}
"""Hints for errors without a hint of their own, subclasses first. All others point to the help."""


def _hint_by_kind(error: BiqeError, arguments: Sequence[str]) -> str:
    hint = next((hint for kind, hint in _HINTS.items() if isinstance(error, kind)), None)
    return hint or _help_hint(_command_of(arguments))


def _os_error(error: OSError) -> str:
    reason = (error.strerror or str(error) or type(error).__name__).lower()
    return f"{error.filename}: {reason}" if error.filename else reason


def _os_hint(error: OSError) -> str | None:
    return {
        errno.ENOSPC: "free some space, or write to another disk with --out",
        errno.EDQUOT: "free some space, or write to another disk with --out",
        errno.EACCES: "you may not read or write there; choose another place or change its permissions",
        errno.EPERM: "you may not read or write there; choose another place or change its permissions",
        errno.EROFS: "that disk is read-only; write to another place with --out",
        errno.ENOENT: "check the spelling, and the folder that you are in",
    }.get(error.errno or 0)


def _debug() -> None:
    if os.environ.get("BIQE_DEBUG", "0") not in ("", "0"):
        traceback.print_exc()
