"""What ``biqe`` does with each way in which a command can end."""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import subprocess
import sys
import threading
import time
import types
from typing import Annotated

import pytest
import typer

from biqe import __version__, cli
from biqe.errors import UnknownName


@pytest.fixture
def ends_with(monkeypatch):
    """Function that runs a command whose body is the given function, and returns the exit code."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore Ctrl-C

    def run(body, *arguments):
        module = types.ModuleType("biqe_test_command")

        def command(
            name: Annotated[str, typer.Argument(help="A name.")] = "x",
            count: Annotated[int, typer.Option(help="A number.")] = 1,
        ) -> None:
            """Say something.

            Examples:

                biqe say 'a   b'     # spacing is kept
                biqe say --count 3
            """
            body()

        module.command = command
        monkeypatch.setitem(sys.modules, "biqe_test_command", module)
        monkeypatch.setitem(cli.COMMANDS, "say", cli.Entry("biqe_test_command:command", "Say something."))
        return cli.main(["say", *arguments])

    yield run
    signal.signal(signal.SIGINT, before)


def raises(error):
    def body():
        raise error

    return body


def test_success_is_0(ends_with, capsys):
    assert ends_with(lambda: print("done")) == 0
    assert capsys.readouterr() == ("done\n", "")


def test_a_biqe_error_is_a_paragraph_with_a_hint_and_2(ends_with, capsys):
    error = UnknownName("relation 'capitalOf' is not in this graph (237 relations) " + "and so on " * 20, hint="look")
    assert ends_with(raises(error)) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: UnknownName: relation 'capitalOf' is not in this graph")
    assert err.endswith("\nhint: look\n")
    assert all(len(line) <= 80 for line in err.splitlines())
    assert "\n\n" not in err


def test_long_names_are_not_broken(ends_with, capsys):
    name = "a-" * 100
    assert ends_with(raises(UnknownName(f"entity {name} is unknown"))) == 2
    assert name in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [(["--nonsense"], "--nonsense"), (["--count", "three"], "--count"), (["a", "b"], "unexpected extra argument")],
)
def test_usage_errors_are_2_and_point_to_help(ends_with, capsys, arguments, expected):
    assert ends_with(lambda: None, *arguments) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: ")
    assert expected in err
    assert "hint: 'biqe say --help'" in err


def test_an_unknown_command_is_2(capsys):
    assert cli.main(["aks"]) == 2
    assert "'aks'" in capsys.readouterr().err


def test_a_fault_of_biqe_is_1_without_traceback(ends_with, capsys):
    assert ends_with(raises(ZeroDivisionError("division by zero"))) == 1
    err = capsys.readouterr().err
    assert err.startswith("error: internal error: ZeroDivisionError: division by zero")
    assert "report" in err
    assert "Traceback" not in err


def test_debug_shows_the_traceback(ends_with, capsys, monkeypatch):
    monkeypatch.setenv("BIQE_DEBUG", "1")
    assert ends_with(raises(ZeroDivisionError("division by zero"))) == 1
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("number", "expected"),
    [(errno.ENOSPC, "free some space"), (errno.EACCES, "permission"), (errno.ENOENT, "check the spelling")],
)
def test_the_machine_s_refusals_are_2(ends_with, capsys, number, expected):
    assert ends_with(raises(OSError(number, os.strerror(number), "runs/x"))) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: runs/x: ")
    assert expected in err


def test_out_of_memory_is_2(ends_with, capsys):
    assert ends_with(raises(MemoryError())) == 2
    assert "out of memory" in capsys.readouterr().err


def test_ctrl_c_is_130(ends_with, capsys):
    assert ends_with(raises(KeyboardInterrupt())) == 130
    assert capsys.readouterr().err == "stopped: interrupted\n"


def test_ctrl_c_where_nothing_can_be_raised_comes_again(ends_with, capsys):
    def body():
        ctypes.CFUNCTYPE(None)(raises(KeyboardInterrupt()))()  # C calls Python, which cannot raise through C
        time.sleep(30)

    before, start = sys.unraisablehook, time.monotonic()
    assert ends_with(body) == 130
    assert time.monotonic() - start < 20
    assert capsys.readouterr().err == "stopped: interrupted\n"
    assert sys.unraisablehook is before


def test_ctrl_c_that_comes_again_too_soon_comes_once_more(ends_with, capsys, monkeypatch):
    class Sudden(threading.Timer):
        """Whose first one is over before it was started."""

        made = 0

        def start(self):
            Sudden.made += 1
            if Sudden.made == 1:
                raise KeyboardInterrupt
            super().start()

    monkeypatch.setattr(threading, "Timer", Sudden)

    def body():
        ctypes.CFUNCTYPE(None)(raises(KeyboardInterrupt()))()
        time.sleep(30)

    assert ends_with(body) == 130 and Sudden.made == 2
    assert capsys.readouterr().err == "stopped: interrupted\n"


def test_a_command_chooses_its_exit_code(ends_with):
    assert ends_with(raises(typer.Exit(3))) == 3


def test_examples_in_help_are_printed_as_they_stand(ends_with, capsys):
    assert ends_with(lambda: None, "--help") == 0
    out = capsys.readouterr().out
    assert "      biqe say 'a   b'     # spacing is kept\n      biqe say --count 3\n" in out


def test_help_lists_every_command_within_80_columns(capsys):
    assert cli.main(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(f"\n  {name} " in out for name in cli.COMMANDS)
    assert all(len(line) <= 80 for line in out.splitlines())


def test_no_arguments_show_the_help(capsys):
    assert cli.main([]) == 0
    assert capsys.readouterr().out.startswith("Usage: biqe ")


def test_version(capsys):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"biqe {__version__}\n"


def shell(command: str) -> subprocess.CompletedProcess:
    script = f"biqe() {{ '{sys.executable}' -m biqe \"$@\"; }}; {command}"
    return subprocess.run(["bash", "-c", script], capture_output=True, text=True)


def test_a_reader_that_goes_away_is_quiet():
    done = shell("biqe --help | head -c 0; echo ${PIPESTATUS[0]}")
    assert done.stderr == ""
    # The help fits the pipe's buffer, so it may have been written before the reader left.
    assert done.stdout.strip() in ("0", "141")


def test_a_closed_standard_output_is_no_fault():
    assert shell("biqe --help >&-").returncode == 0


def test_a_full_disk_on_standard_output_is_2():
    if not os.path.exists("/dev/full"):
        pytest.skip("this system has no /dev/full")
    done = shell("biqe --help > /dev/full")
    assert done.returncode == 2
    assert done.stderr.startswith("error: no space left on device")
    assert shell("biqe stats no/such/graph 2> /dev/full").returncode == 2, "nor is standard error that is full a fault"


def test_names_outside_the_terminal_s_encoding_are_printed():
    code = "import sys; from biqe.cli import _prepare_streams; _prepare_streams(); print('Köln')"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONIOENCODING": "ascii"}
    )
    assert (done.returncode, done.stdout) == (0, "K\\xf6ln\n")


@pytest.mark.parametrize(
    ("typed", "meant"), [("aks", "ask"), ("trian", "train"), ("evalute", "evaluate"), ("Ask", "ask")]
)
def test_a_misspelt_command_is_answered_with_the_nearest(typed, meant, capsys):
    assert cli.main([typed, "atlas"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and f"There is no command {typed!r}. Did you mean {meant!r}?" in " ".join(err.split())
    assert "hint: " in err


def test_a_word_that_is_like_no_command_gets_no_suggestion(capsys):
    assert cli.main(["quux"]) == 2
    err = capsys.readouterr().err
    assert "quux" in err and "mean" not in err and "biqe --help" in err


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_every_command_is_itself(command, capsys):
    assert cli.main([command, "--help"]) == 0
    assert f"Usage: biqe {command}" in capsys.readouterr().out


def test_an_interrupt_while_the_program_is_loaded_is_silent():
    code = "import sys, builtins\nload = builtins.__import__\n" + (
        "def interrupted(name, *rest):\n"
        "    if name == 'biqe.cli':\n"
        "        raise KeyboardInterrupt\n"
        "    return load(name, *rest)\n"
        "from biqe.__main__ import main\n"
        "builtins.__import__ = interrupted\n"
        "sys.exit(main())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
