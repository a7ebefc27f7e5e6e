"""``import_files`` in a process of its own, with a limit on its memory: what ``biqe import`` and ``biqe try`` call.

Files come from anywhere. One that takes all memory, or that crashes a parser, ends the child; the command goes on, and
says so. The child may have what memory is free when it starts.

It writes messages, a line of JSON each: how many bytes it has read; in the end the manifest, or the error.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import subprocess
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from biqe import errors
from biqe.errors import BiqeError, RunFailed, UnreadableFile
from biqe.graph import folder
from biqe.graph.blocks import Advance
from biqe.graph.importer import Imported, import_files

LEAST_MEMORY = 256 << 20
"""Bytes that a child may have, however little is free."""
STOP = 10.0
"""Seconds in which a child that is no longer wanted may remove what it has written."""


def import_in_child(
    paths: Sequence[str | Path],
    out: str | Path,
    *,
    advance: Advance | None = None,
    memory: int | None = None,
    **options: Any,
) -> Imported:
    """As ``import_files`` with these options; ``memory``: bytes that it may have, instead of what is free."""
    asked = {"paths": [os.fspath(path) for path in paths], "out": os.fspath(out)}
    asked |= {name: os.fspath(value) if isinstance(value, Path) else value for name, value in options.items()}
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    with open(reader, "rb") as messages:
        try:
            # Without the folder that it starts in among the places of modules. Inputs may be open files, /dev/fd/63.
            child = subprocess.Popen(
                [sys.executable, "-P", "-m", __name__, str(writer), str(memory or 0), json.dumps(asked)],
                close_fds=False,
            )
        finally:
            os.close(writer)
        try:
            last = _followed(messages, advance)
        finally:
            messages.close()  # a child that goes on to write ends
            _wait(child)
    if last is None:
        raise UnreadableFile(
            f"the import of {asked['paths'][0]} was stopped: it needed more memory than is free",
            hint="import it in parts, as N-Triples or TSV, which are read in pieces, or on a machine with more memory",
        )
    if "fault" in last:
        raise RunFailed(f"the process that imports failed: {last['fault']}")
    if "error" in last:
        raise errors.from_fields(last["error"], last["says"])
    return Imported(folder.load(out), last["manifest"], last["how_split"])


def _followed(messages: IO[bytes], advance: Advance | None) -> dict[str, Any] | None:
    """The last message; None if the child ended without one."""
    for line in messages:
        message = json.loads(line)
        if "read" not in message:
            return dict(message)
        if advance is not None:
            advance(message["read"])
    return None


def _wait(child: subprocess.Popen[bytes]) -> None:
    try:
        child.wait(STOP)
    except BaseException as error:
        child.kill()
        child.wait()
        if not isinstance(error, subprocess.TimeoutExpired):
            raise


def main(writer: str, memory: str, asked: str) -> None:
    """The child: reads, writes the folder, and tells what it made. Ends at once where memory is used up."""
    with open(int(writer), "wb", buffering=0) as messages:

        def tell(**message: Any) -> None:
            messages.write(json.dumps(message, default=str).encode() + b"\n")

        options = json.loads(asked)
        if isinstance(options.get("shares"), list):
            options["shares"] = tuple(options["shares"])
        _limit(int(memory))
        try:
            made = import_files(options.pop("paths"), options.pop("out"), advance=lambda n: tell(read=n), **options)
            tell(manifest=made.manifest, how_split=made.how_split)
        except (BrokenPipeError, KeyboardInterrupt):
            os._exit(1)  # the command was stopped, and says so
        except MemoryError:
            os._exit(1)
        except BiqeError as error:
            tell(error=type(error).__name__, says=vars(error))
        except Exception as error:
            tell(fault="".join(traceback.format_exception(error)))


def _limit(memory: int) -> None:
    """Give this process so many bytes beside what it has; 0: what is free."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if not memory:
        free = 0
        with contextlib.suppress(OSError, ValueError):
            lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
            free = sum(int(lines[name].split()[0]) << 10 for name in ("MemAvailable", "SwapFree"))
        if not free:
            return  # not Linux: the system's own limits hold
        memory = max(free, LEAST_MEMORY)
    with contextlib.suppress(OSError, ValueError):
        in_use = int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
        # Data alone: the files of the graph are memory-mapped, and cost no memory of their own.
        resource.setrlimit(resource.RLIMIT_DATA, (in_use + memory, in_use + memory))


if __name__ == "__main__":
    main(*sys.argv[1:])
