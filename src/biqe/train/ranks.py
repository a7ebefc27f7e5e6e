"""The processes that train one model together: how they meet, what they tell each other, and how they fail.

    torchrun --nproc-per-node 4 -m biqe train ...     starts the processes and tells each its rank
    joined(...)                                       waits until all are there; alone where there is one
    ranks.all_or_none(work)                           what fails on one rank fails on every rank, with its reason
    ranks.from_first(work)                            rank 0 does it, all know the result
    ranks.same(facts)                                 refuses ranks that see different graphs, settings or programs

Messages are JSON. Every exchange has a time-out, so that a rank that is gone or stuck ends the others with an error
that says so, and never with a wait without end.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch.distributed.rendezvous import rendezvous

from biqe.errors import BiqeError, RanksFailed
from biqe.models._split_entities import all_gather

T = TypeVar("T")

LOST = ("gloo", "connection closed", "connection reset", "connection refused", "timed out", "broken pipe", "tcpstore")
"""Words by which a failed exchange is told from any other error of torch."""


@dataclass(frozen=True)
class Pulse:
    """What all ranks know before a step."""

    share: float
    """This rank's part of the predictions of the step."""
    queries: int
    """Of all ranks."""
    seconds: float
    """Time used, by the clock of rank 0."""
    stop: bool
    """Whether any rank was asked to stop."""
    save: bool
    """Whether rank 0 finds that a checkpoint is due."""


@dataclass(frozen=True)
class Ranks:
    """This process among those of its run."""

    rank: int = 0
    """Number of this process, from 0."""
    world: int = 1
    """How many there are."""
    here: int = 1
    """How many of them are on this machine."""

    @property
    def first(self) -> bool:
        """Whether this is the rank that writes the run folder and shows the run."""
        return self.rank == 0

    @property
    def several(self) -> bool:
        """Whether there are others to talk to."""
        return self.world > 1

    def everyones(self, value: Any) -> list[Any]:
        """What each rank says, in their order. Values are JSON."""
        if not self.several:
            return [value]
        said = json.dumps(value).encode()
        lengths = self.table([len(said)])
        longest = int(max(row[0] for row in lengths))
        padded = torch.zeros(longest, dtype=torch.uint8)
        padded[: len(said)] = torch.frombuffer(bytearray(said), dtype=torch.uint8)
        heard = padded.new_empty(self.world * longest)
        with exchange("gathering what the ranks say"):
            all_gather(heard, padded)
        parts = heard.view(self.world, longest)
        return [json.loads(bytes(part[: int(row[0])].tolist())) for part, row in zip(parts, lengths, strict=True)]

    def table(self, numbers: Sequence[float]) -> list[list[float]]:
        """Numbers of each rank, as many on each, in their order."""
        if not self.several:
            return [list(map(float, numbers))]
        own = torch.tensor(numbers, dtype=torch.float64)
        heard = own.new_empty(self.world * len(own))
        with exchange("gathering numbers of the ranks"):
            all_gather(heard, own)
        return heard.view(self.world, -1).tolist()

    def pulse(self, *, predictions: int, queries: int, seconds: float, stop: bool, save: bool) -> Pulse:
        """What all ranks know before a step; one exchange for all of it."""
        if not self.several:
            return Pulse(1.0, queries, seconds, stop, save)
        said = self.table([predictions, queries, seconds, stop, save])
        share = predictions / max(1.0, sum(row[0] for row in said))
        return Pulse(share, int(sum(row[1] for row in said)), said[0][2], any(row[3] for row in said), said[0][4] > 0)

    def all_or_none(self, work: Callable[[], T]) -> T:
        """``work`` on every rank. Where it fails on one, it fails on all: there with its own error, elsewhere with an
        error that repeats it."""
        if not self.several:
            return work()
        failed: BiqeError | None = None
        done: list[T] = []
        try:
            done.append(work())
        except BiqeError as error:
            failed = error
        told = self.everyones(None if failed is None else _told(failed))
        if failed is not None:
            raise failed
        for rank, message in enumerate(told):
            if message is not None:
                raise _repeated(rank, message)
        return done[0]

    def from_first(self, work: Callable[[], T]) -> T:
        """What ``work`` gives on rank 0, on every rank; or its error. The value is JSON."""
        if not self.several:
            return work()
        message: dict[str, Any] | None = None
        failed: BiqeError | None = None
        if self.first:
            try:
                message = {"value": work()}
            except BiqeError as error:
                failed, message = error, {"error": _told(error)}
        said = self.everyones(message)[0]
        if failed is not None:
            raise failed
        if "error" in said:
            raise _repeated(0, said["error"])
        return said["value"]  # type: ignore[no-any-return]

    def same(self, facts: Mapping[str, Mapping[str, Any]], hints: Mapping[str, str]) -> None:
        """Refuse, on every rank, ranks that differ in one of ``facts``. ``hints`` say what to do about each."""
        if not self.several:
            return
        said = self.everyones(facts)
        for name in facts:
            for rank, other in enumerate(said):
                ours, theirs = said[0][name], other[name]
                apart = [key for key in {**ours, **theirs} if ours.get(key) != theirs.get(key)]
                if apart:
                    raise RanksFailed(
                        f"the ranks of this run see different {name}: rank 0 has {_brief(ours, apart)}, "
                        f"rank {rank} has {_brief(theirs, apart)} (this is rank {self.rank} of {self.world})",
                        hint=hints.get(name),
                    )


ALONE = Ranks()
"""A run of one process."""


@contextmanager
def joined(timeout: float) -> Iterator[Ranks]:
    """This process among those that torchrun started, once all are there; ``ALONE`` where nobody started several.

    ``timeout`` is in seconds, for the meeting and for every exchange after it.
    """
    world = _number("WORLD_SIZE", 1)
    if world == 1:
        yield ALONE
        return
    try:
        yield _met(world, timeout)
    finally:
        # After an error, too: the others, who may wait for us in some exchange, notice that we have hung up, and a
        # process that ends with its connections open is torn down by the system's abort, which hides its error.
        if dist.is_initialized():
            dist.destroy_process_group()


def _met(world: int, timeout: float) -> Ranks:
    absent = [name for name in ("RANK", "MASTER_ADDR", "MASTER_PORT") if not os.environ.get(name)]
    if absent:
        raise RanksFailed(
            f"WORLD_SIZE is {world}, so there are other ranks, but {' and '.join(absent)} "
            f"{'is' if len(absent) == 1 else 'are'} not set: nothing says where to meet them",
            hint="start all ranks with torchrun --nproc-per-node N -m biqe train ..., or unset WORLD_SIZE",
        )
    rank = _number("RANK", 0)
    where = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
    if not 0 <= rank < world:
        raise RanksFailed(f"RANK must be from 0 to {world - 1} with WORLD_SIZE {world}. Got {rank}")
    here, wait = _number("LOCAL_WORLD_SIZE", 1), timedelta(seconds=timeout)
    try:
        store, _, _ = next(rendezvous("env://", timeout=wait))
        store.set_timeout(wait)
        if here == world:
            # On one machine torchrun keeps its store over restarts, and in it where the dead ranks were to be found.
            # On several, each round has a store of its own, and machines may count restarts differently.
            store = dist.PrefixStore(f"attempt-{_number('TORCHELASTIC_RESTART_COUNT', 0)}", store)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=world, timeout=wait)
    except (RuntimeError, ValueError) as error:
        raise RanksFailed(
            f"rank {rank} of {world} did not meet the others at {where} within {timeout:g} s: {_first_line(error)}",
            hint="start all ranks within that time, with the same MASTER_ADDR and MASTER_PORT, and let them reach each "
            "other over the network; torchrun does both. -O rank_timeout=SECONDS waits longer",
        ) from error
    return Ranks(rank, world, here)


@contextmanager
def exchange(doing: str) -> Iterator[None]:
    """Say in words what has happened when ranks lose each other in the block."""
    try:
        yield
    except RuntimeError as error:
        text = _first_line(error)
        if isinstance(error, dist.DistError) or any(word in str(error).lower() for word in LOST):
            rank, world = _number("RANK", 0), _number("WORLD_SIZE", 1)
            raise RanksFailed(
                f"rank {rank} of {world} lost the others while {doing}: {text}",
                hint="another rank has ended or does not answer; its own message says why. Go on from the last "
                "checkpoint with --resume, or let torchrun do so with --max-restarts",
            ) from error
        raise


def restarted() -> bool:
    """Whether torchrun has started the ranks anew after one of them died."""
    return _number("TORCHELASTIC_RESTART_COUNT", 0) > 0


def job() -> str | None:
    """A name of the torchrun job that started this process, the same after its restarts; None without torchrun."""
    given = os.environ.get("TORCHELASTIC_RUN_ID")
    if given is None:
        return None
    if given != "none":
        return given
    # Without a rendezvous id of the user's, the process that restarts us tells jobs apart.
    parent = os.getppid()
    try:
        began = Path(f"/proc/{parent}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        began = "?"
    return f"{socket.gethostname()}:{parent}:{began}"


def is_first() -> bool:
    """Whether this process is the one that shows the run, before the ranks have met."""
    return os.environ.get("RANK", "0") == "0" or os.environ.get("WORLD_SIZE", "1") == "1"


def _number(name: str, otherwise: int) -> int:
    text = os.environ.get(name) or str(otherwise)
    try:
        return int(text)
    except ValueError:
        raise RanksFailed(f"{name} must be a number. Got {text!r}", hint="torchrun sets it for every rank") from None


def _told(error: BiqeError) -> dict[str, str | None]:
    return {"kind": type(error).__name__, "message": error.message, "hint": error.hint}


def _repeated(rank: int, error: Mapping[str, str | None]) -> RanksFailed:
    return RanksFailed(f"rank {rank} failed: {error['kind']}: {error['message']}", hint=error["hint"])


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _brief(facts: Mapping[str, Any], names: Sequence[str]) -> str:
    return ", ".join(f"{name} {facts.get(name)}" for name in names[:3])
