"""The machine that figures were made on, and the files that benchmarks write."""

import json

from biqe.evaluate.machine import machine, write_result


def test_the_machine_is_described():
    found = machine()
    assert found["peak_resident_mib"] > 10
    assert found["processor"]
    assert found["allocator"] in ("system", "tcmalloc", "jemalloc", "mimalloc")


def test_a_result_is_printed_and_written(tmp_path, capsys):
    write_result({"ratio": 1.5}, tmp_path / "deep" / "result.json")
    write_result({"ratio": 2.5}, None)
    assert json.loads((tmp_path / "deep" / "result.json").read_text()) == {"ratio": 1.5}
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [{"ratio": 1.5}, {"ratio": 2.5}]
