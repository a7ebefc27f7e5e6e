"""Seconds from the shell to the first answer on the atlas, cold, beside a bare ``import torch``.

    python benchmarks/first_answer.py
    python benchmarks/first_answer.py --rounds 3

Each round starts these processes, one after the other, so that a busy machine slows all alike: ``biqe ask atlas`` with
predicted rows, the same with known rows only, ``import biqe`` alone, and ``import torch``, without which nothing can be
predicted and which no program that uses it can go below. Files are in the system's cache after the first round, which
is not counted. Processor time is measured beside wall time, for on a busy machine only that says what was done.
``ratio`` is the processor time of ``import torch`` over that of the first answer: the share of it that is not ours.
The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

from biqe.evaluate.machine import write_result

QUERY = "SELECT ?river WHERE { :Bonn :located_on ?river }"
ASK = [sys.executable, "-m", "biqe", "ask", "atlas", QUERY]
PROGRAMS = {
    "first_answer": [*ASK, "--top", "3"],
    "first_known_answer": [*ASK, "--mode", "known"],
    "import_biqe": [sys.executable, "-c", "import biqe"],
    "import_torch": [sys.executable, "-c", "import torch"],
    "python": [sys.executable, "-c", ""],
}
TARGETS = {"first_answer": 3.0, "import_biqe": 0.3}
"""Seconds of wall time that are wanted on a quiet machine."""


ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
"""Where Python may keep compiled modules, as it does for a package that was installed."""


def run(command: list[str]) -> tuple[float, float]:
    """Seconds of wall time and of processor time that a process takes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=ENVIRONMENT)
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def main() -> None:
    """Read the options, run the programs, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, help="also write the result there, such as results/speed/first_answer.json")
    arguments = parser.parse_args()
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in PROGRAMS}
    for number in range(arguments.rounds + 1):
        for name, command in PROGRAMS.items():
            taken = run(command)
            if number:
                times[name].append(taken)
    wall, cpu = (
        {name: round(statistics.median(taken[column] for taken in rows), 3) for name, rows in times.items()}
        for column in (0, 1)
    )
    for name in PROGRAMS:
        wanted = f"   wanted {TARGETS[name]} s on a quiet machine" if name in TARGETS else ""
        print(f"{name:19} {wall[name]:6.2f} s, {cpu[name]:.2f} s of processor time{wanted}")
    result = {
        "benchmark": "first_answer",
        "ours": f"{cpu['first_answer']:.2f} s of processor time to the first predicted answer",
        "alternative": f"{cpu['import_torch']:.2f} s for import torch alone",
        "rounds": arguments.rounds,
        "ratio": round(cpu["import_torch"] / cpu["first_answer"], 3),
        "wall": wall,
        "cpu": cpu,
        "targets": TARGETS,
        "targets_met": {name: wall[name] <= seconds for name, seconds in TARGETS.items()},
        "cores": os.cpu_count(),
        "load_average": round(os.getloadavg()[0], 1),
    }
    write_result(result, arguments.out)


if __name__ == "__main__":
    main()
