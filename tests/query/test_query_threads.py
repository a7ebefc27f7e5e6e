"""Queries that are parsed in several threads from the very first one on, as a server does it."""

from __future__ import annotations

import subprocess
import sys

FIRST_QUERIES = """
import sys, threading
from biqe.query.sparql import parse_question
sys.setswitchinterval(1e-6)  # threads take turns as often as they can
texts = [f"SELECT ?x WHERE {{ ?x :p{number} :e . FILTER(?x != :y) }}" for number in range(8)]
start, found = threading.Barrier(len(texts)), []
def parse(text):
    start.wait()
    found.append(str(parse_question(text, prefixes={"": ""})))
threads = [threading.Thread(target=parse, args=(text,)) for text in texts]
for thread in threads: thread.start()
for thread in threads: thread.join()
found.append(str(parse_question("ASK { :a :p :b }", prefixes={"": ""})))
print("\\n".join(sorted(found)))
"""


def test_first_queries_may_come_all_at_once():
    # Each process has one first moment, so there are several.
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", FIRST_QUERIES], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0 and done.stderr == ""
        lines = done.stdout.splitlines()
        assert lines[0] == "ASK { <a> <p> <b> }"
        assert lines[1:] == [f"SELECT ?x WHERE {{ ?x <p{n}> <e> FILTER(?x != <y>) }}" for n in range(8)]
