"""The ranks of a run: processes that train one model together. How they meet, communicate and fail.

    torchrun --nproc-per-node 4 -m biqe train ...     starts the processes and tells each its rank
    joined(...)                                       connects them; returns at once for a single process
    ranks.all_or_none(work)                           runs work on every rank; an error on one is raised on all
    ranks.from_first(work)                            runs work on rank 0; all get the result
    ranks.check_same(facts)                           refuses ranks with different graphs, settings or programs

Messages are JSON. Every exchange has a timeout, so that a rank that is gone or stuck ends the others with an error
instead of blocking them.
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

LOST = (
    "gloo",
    "nccl",
    "connection closed",
    "connection reset",
    "connection refused",
    "timed out",
    "broken pipe",
    "tcpstore",
)
"""Words that tell a failed exchange from other errors of torch."""


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
        """Whether this is rank 0, which writes the run folder and shows the run."""
        return self.rank == 0

    @property
    def several(self) -> bool:
        """Whether there is more than one rank."""
        return self.world > 1

    def gather(self, value: Any) -> list[Any]:
        """The ``value`` of each rank, in order of rank. Values are JSON."""
        if not self.several:
            return [value]
        text = json.dumps(value).encode()
        lengths = self.gather_numbers([len(text)])
        longest = int(max(row[0] for row in lengths))
        padded = torch.zeros(longest, dtype=torch.uint8)
        padded[: len(text)] = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        gathered = padded.new_empty(self.world * longest)
        with exchange("exchanging messages"):
            all_gather(gathered, padded)
        parts = gathered.view(self.world, longest)
        return [json.loads(bytes(part[: int(row[0])].tolist())) for part, row in zip(parts, lengths, strict=True)]

    def gather_numbers(self, numbers: Sequence[float]) -> list[list[float]]:
        """The ``numbers`` of each rank, in order of rank; all ranks give equally many."""
        if not self.several:
            return [list(map(float, numbers))]
        own = torch.tensor(numbers, dtype=torch.float64)
        gathered = own.new_empty(self.world * len(own))
        with exchange("exchanging numbers"):
            all_gather(gathered, own)
        return gathered.view(self.world, -1).tolist()

    def all_or_none(self, work: Callable[[], T]) -> T:
        """Run ``work`` on every rank. An error on one rank is raised on all; the others repeat its message."""
        if not self.several:
            return work()
        failed: BiqeError | None = None
        done: list[T] = []
        try:
            done.append(work())
        except BiqeError as error:
            failed = error
        errors = self.gather(None if failed is None else _as_message(failed))
        if failed is not None:
            raise failed
        for rank, message in enumerate(errors):
            if message is not None:
                raise _repeated(rank, message)
        return done[0]

    def from_first(self, work: Callable[[], T]) -> T:
        """Run ``work`` on rank 0 and give every rank its result, which is JSON, or its error."""
        if not self.several:
            return work()
        message: dict[str, Any] | None = None
        failed: BiqeError | None = None
        if self.first:
            try:
                message = {"value": work()}
            except BiqeError as error:
                failed, message = error, {"error": _as_message(error)}
        said = self.gather(message)[0]
        if failed is not None:
            raise failed
        if "error" in said:
            raise _repeated(0, said["error"])
        return said["value"]  # type: ignore[no-any-return]

    def check_same(self, facts: Mapping[str, Mapping[str, Any]], hints: Mapping[str, str]) -> None:
        """RanksFailed on every rank if they differ in one of ``facts``. ``hints`` say what to do about each."""
        if not self.several:
            return
        said = self.gather(facts)
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
    """This process among those that torchrun started, once all are connected; ``ALONE`` without torchrun.

    ``timeout`` is in seconds, for connecting and for every exchange after that.
    """
    world = _number("WORLD_SIZE", 1)
    if world == 1:
        yield ALONE
        return
    try:
        yield _connect(world, timeout)
    finally:
        # After an error, too: other ranks that wait in an exchange notice the closed connection. And a process that
        # ends with open connections is aborted, which hides its own error message.
        if dist.is_initialized():
            dist.destroy_process_group()


def _connect(world: int, timeout: float) -> Ranks:
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
            # On one machine torchrun keeps its store over restarts, with the addresses of the dead ranks in it.
            # On several machines each restart has its own store, and machines may count restarts differently.
            store = dist.PrefixStore(f"attempt-{_number('TORCHELASTIC_RESTART_COUNT', 0)}", store)
        # What the ranks tell each other is in the processor's memory; gradients are where the model lives.
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() and dist.is_nccl_available() else "gloo"
        dist.init_process_group(backend, store=store, rank=rank, world_size=world, timeout=wait)
    except (RuntimeError, ValueError) as error:
        raise RanksFailed(
            f"rank {rank} of {world} did not meet the others at {where} within {timeout:g} s: {_first_line(error)}",
            hint="start all ranks within that time, with the same MASTER_ADDR and MASTER_PORT, and let them reach each "
            "other over the network; torchrun does both. -O rank_timeout=SECONDS waits longer",
        ) from error
    return Ranks(rank, world, here)


@contextmanager
def exchange(doing: str) -> Iterator[None]:
    """Turn a lost connection in the block into a RanksFailed that says what was being done."""
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
    """Whether torchrun has restarted the ranks after one of them died."""
    return _number("TORCHELASTIC_RESTART_COUNT", 0) > 0


def job() -> str | None:
    """Id of the torchrun job that started this process, the same after restarts; None without torchrun."""
    given = os.environ.get("TORCHELASTIC_RUN_ID")
    if given is None:
        return None
    if given != "none":
        return given
    # Without a rendezvous id from the user, the parent process, which does the restarts, identifies the job.
    parent = os.getppid()
    try:
        began = Path(f"/proc/{parent}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        began = "?"
    return f"{socket.gethostname()}:{parent}:{began}"


def is_first() -> bool:
    """Whether this process is rank 0, or alone; may be called before the ranks are connected."""
    return os.environ.get("RANK", "0") == "0" or os.environ.get("WORLD_SIZE", "1") == "1"


def _number(name: str, otherwise: int) -> int:
    text = os.environ.get(name) or str(otherwise)
    try:
        return int(text)
    except ValueError:
        raise RanksFailed(f"{name} must be a number. Got {text!r}", hint="torchrun sets it for every rank") from None


def _as_message(error: BiqeError) -> dict[str, str | None]:
    return {"kind": type(error).__name__, "message": error.message, "hint": error.hint}


def _repeated(rank: int, error: Mapping[str, str | None]) -> RanksFailed:
    return RanksFailed(f"rank {rank} failed: {error['kind']}: {error['message']}", hint=error["hint"])


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _brief(facts: Mapping[str, Any], names: Sequence[str]) -> str:
    return ", ".join(f"{name} {facts.get(name)}" for name in names[:3])
