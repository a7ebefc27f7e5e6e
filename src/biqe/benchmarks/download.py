"""Benchmark files fetched into the data folder: pinned by checksum, resumable, one at a time.

A file is written beside its place as ``NAME.part`` and moved there when its checksum is right; an interrupted fetch
goes on where it stopped. Another file in its place is kept as ``NAME.bak``. Proxies are those of the environment
(``https_proxy`` and so on). Files without an address that is known to stay are not fetched: ``describe(name).how`` says
where to put them.
"""

from __future__ import annotations

import http.client
import logging
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files as package_files
from pathlib import Path

from biqe.benchmarks.storage import data_folder, sha256
from biqe.errors import InvalidOption, RunFailed, UnknownName, UnreadableFile

Progress = Callable[[str, int, int], None]
"""Called with the file's name, the bytes at hand and the bytes in all."""

QUERY2BOX = "https://raw.githubusercontent.com/hyren/query2box/{commit}/data/{file}"
_Q2B_NAMES = "6fd209123ac87739b4182b7bc82ba8012f97d10d"
_Q2B_QUERIES = "d531a608e9eb6bdb70a3cdf88cb6c330297d80b0"
"""States of the repository that hold the names, and queries and answers."""
WN18RR = (
    "https://raw.githubusercontent.com/villmow/datasets_knowledge_embedding/"
    "045a868edc0b18d7083b14e80715e82d92938fff/WN18RR/text/{file}"
)
FETCHED = {
    "fb15k237-q2b": "q2b/FB15k-237/",
    "nell995-q2b": "q2b/NELL-995/",
    "wn18rr-cq": "WN18RR/",
    "wn18rr-paths": "WN18RR/",
}
"""Folder of the files that are fetched for each benchmark."""

_BLOCK = 1 << 18
_LOG = logging.getLogger(__name__)


class _BrokeOff(Exception):
    """The server sent less, more or another part than was asked for; caught within this file."""


@dataclass(frozen=True)
class Remote:
    """A file that can be fetched, and what it must be."""

    url: str
    place: str
    """Where it goes, from the data folder."""
    sha256: str
    bytes: int


def remote_files(name: str) -> list[Remote]:
    """The files of the benchmark ``name`` that can be fetched; empty where there are none."""
    folder = FETCHED.get(name)
    return [remote for remote in _all_files() if folder is not None and remote.place.startswith(folder)]


def fetch(
    name: str, *, data: str | Path | None = None, on_progress: Progress | None = None, timeout: float = 30.0
) -> list[Path]:
    """Fetch what the data folder lacks of the benchmark ``name``; returns the places of all its fetched files."""
    from biqe.benchmarks.registry import describe

    facts = describe(name, data=data)
    remotes = remote_files(name)
    if not remotes:
        raise UnknownName(f"the files of {name} have no address to fetch them from", hint=facts.how)
    return fetch_files(remotes, data_folder(data), on_progress=on_progress, timeout=timeout)


def fetch_files(
    remotes: Sequence[Remote],
    folder: Path,
    *,
    on_progress: Progress | None = None,
    timeout: float = 30.0,
    tries: int = 4,
    pause: float = 1.0,
) -> list[Path]:
    """Fetch those of ``remotes`` that ``folder`` lacks or has with another checksum. ``tries`` a file, two where it
    comes with a wrong checksum, with ``pause`` seconds, doubled each time, between them; a server that is silent for
    ``timeout`` seconds counts as one that broke off. Whatever else lay in a file's place is moved aside, and a warning
    is logged."""
    if tries < 1 or timeout <= 0:
        raise InvalidOption(f"tries must be 1 or more and timeout above 0. Got {tries} and {timeout}")
    places = []
    for remote in remotes:
        target = folder / remote.place
        if not _is_right(target, remote):
            _fetch(remote, target, on_progress or (lambda *_: None), timeout, tries, pause)
        places.append(target)
    return places


def _is_right(path: Path, remote: Remote) -> bool:
    """Whether ``path`` is the file, byte for byte."""
    return path.is_file() and path.stat().st_size == remote.bytes and sha256(path) == remote.sha256


def _fetch(remote: Remote, target: Path, on_progress: Progress, timeout: float, tries: int, pause: float) -> None:
    part = target.with_name(target.name + ".part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunFailed(f"{target.parent} cannot be made: {error.strerror or error}") from error
    problem = ""
    mistaken = 0
    for attempt in range(tries):
        if attempt:
            time.sleep(pause * 2 ** (attempt - 1))
        try:
            _receive(remote, part, on_progress, timeout)
        except urllib.error.HTTPError as error:
            problem = f"the server answers {error.code} {error.reason}"
            if error.code == 416:
                part.unlink(missing_ok=True)  # what is at hand is not a beginning of the file
            elif 400 <= error.code < 500 and error.code not in (408, 429):
                break
            continue
        except (urllib.error.URLError, TimeoutError, ConnectionError, http.client.HTTPException, _BrokeOff) as error:
            problem = f"it broke off: {getattr(error, 'reason', None) or error or type(error).__name__}"
            continue
        except OSError as error:
            raise RunFailed(
                f"{part} could not be written: {error.strerror or error}", hint="is the disk full, or read-only?"
            ) from error
        found = sha256(part)
        if found == remote.sha256:
            _put(part, target)
            return
        part.unlink(missing_ok=True)
        problem = f"it came with checksum {found[:16]}…, not {remote.sha256[:16]}…"
        mistaken += 1
        if mistaken == 2:  # the first may be due to an old beginning; a server that has another file has it each time
            break
    raise UnreadableFile(
        f"{remote.url} could not be fetched after {attempt + 1} tries: {problem}",
        hint=f"get the file by other means and put it at {target}",
    )


def _put(part: Path, target: Path) -> None:
    """Move what was fetched to its place, and another file that lies there aside."""
    try:
        if target.exists():
            aside = target.with_name(target.name + ".bak")
            number = 1
            while aside.exists():
                number += 1
                aside = target.with_name(f"{target.name}.bak{number}")
            target.rename(aside)
            _LOG.warning("%s was another file than the one that was fetched; it is kept as %s", target, aside.name)
        part.replace(target)
    except OSError as error:
        raise RunFailed(f"{target} could not be put in its place: {error.strerror or error}") from error


def _receive(remote: Remote, part: Path, on_progress: Progress, timeout: float) -> None:
    """Append what is missing to ``part``; _BrokeOff if less came than the whole file."""
    held = part.stat().st_size if part.exists() else 0
    if held > remote.bytes:
        part.unlink()
        held = 0
    if held == remote.bytes:
        return
    request = urllib.request.Request(remote.url, headers={"User-Agent": "biqe", "Accept-Encoding": "identity"})
    if held:
        request.add_header("Range", f"bytes={held}-")
    # An opener of its own reads the proxies of the environment as they are now.
    with urllib.request.build_opener().open(request, timeout=timeout) as response:
        # 206 goes on where we stopped, if it says so; 200 begins anew, whatever was asked.
        goes_on = response.status == 206 and str(response.headers.get("Content-Range", "")).startswith(f"bytes {held}-")
        if held and not goes_on:
            if response.status == 206:
                part.unlink()
                raise _BrokeOff(f"asked to go on at byte {held:,}, the server sent another part")
            held = 0
        with part.open("ab" if held else "wb") as stream:
            # read1 gives what has come: with read, a silent server would cost all that came before the silence.
            while block := response.read1(min(_BLOCK, remote.bytes - held + 1)):
                held += len(block)
                if held > remote.bytes:
                    # Longer than the file can be: whatever it is, it is not that file.
                    stream.truncate(0)
                    raise _BrokeOff(f"more than the {remote.bytes:,} bytes of the file came")
                stream.write(block)
                on_progress(remote.place, held, remote.bytes)
    if held < remote.bytes:
        raise _BrokeOff(f"{held:,} of {remote.bytes:,} bytes came")


def _all_files() -> list[Remote]:
    text = (package_files("biqe.benchmarks") / "remote_files.txt").read_text("utf-8")
    found = []
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        sha256, size, place = line.split()
        found.append(Remote(_url(place), place, sha256, int(size)))
    return found


def _url(place: str) -> str:
    if place.startswith("WN18RR/"):
        return WN18RR.format(file=place.removeprefix("WN18RR/"))
    commit = _Q2B_NAMES if "/ind2" in place else _Q2B_QUERIES
    # Its folder is called NELL there.
    return QUERY2BOX.format(commit=commit, file=place.removeprefix("q2b/").replace("NELL-995/", "NELL/"))
