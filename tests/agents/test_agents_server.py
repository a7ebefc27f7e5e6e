"""``biqe mcp`` as an agent's client meets it: the SDK's own client, over standard input and output."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

pytest.importorskip("mcp", reason="the extra 'agents' is not installed")

from mcp import Client, StdioServerParameters, stdio_client  # noqa: E402

from biqe import __version__  # noqa: E402
from biqe.cli import main  # noqa: E402

BONN = "SELECT ?river { :Bonn :located_on ?river }"


def entry(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    """What ``biqe mcp --json`` tells a client to start."""
    assert main(["mcp", *map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)["mcpServers"]["biqe"]


def session(started: dict[str, Any], talk: Any) -> None:
    environment = {name: os.environ[name] for name in ("PYTHONPATH", "OMP_NUM_THREADS") if name in os.environ}

    async def run() -> None:
        parameters = StdioServerParameters(**started, env=environment)
        with open(os.devnull, "w") as nowhere:
            async with Client(stdio_client(parameters, errlog=nowhere)) as client:
                await talk(client)

    anyio.run(run)


@pytest.mark.slow
def test_a_session_over_stdio(capsys: pytest.CaptureFixture[str]) -> None:
    async def talk(client: Client) -> None:
        assert client.server_info is not None and client.server_info.version == __version__
        assert "Never report a prediction as a fact" in str(client.instructions)
        offered = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert list(offered) == ["schema", "find", "ask", "explain", "suggest"]
        for tool in offered.values():
            assert tool.annotations is not None and tool.annotations.read_only_hint is True
            assert tool.description and tool.input_schema["additionalProperties"] is False

        async def call(name: str, **arguments: Any) -> Any:
            result = await client.call_tool(name, arguments)
            assert not result.is_error, result.content
            assert json.loads(result.content[0].text) == result.structured_content
            return result.structured_content

        assert (await call("schema"))["predicts"] is True
        assert (await call("find", text="bonn"))["found"][0]["query"] == ":Bonn"
        told = await call("ask", query=BONN, top=2)
        assert [row["values"]["river"] for row in told["predicted"]][0] == "Rhine" and told["abstain"] is True
        assert (await call("explain", query=BONN, row=0))["why"] == told["predicted"][0]["why"]
        assert len((await call("suggest", entity="Bonn", top=2))["suggestions"]) == 2

        async with anyio.create_task_group() as group:  # several questions at once
            for _ in range(6):
                group.start_soon(lambda: call("ask", query=BONN, top=2))

        for name, arguments, said in [
            ("ask", {"query": "SELECT"}, "hint: "),
            ("ask", {"query": "SELECT ?r { :Bon :located_on ?r }"}, "is not in this graph"),
            ("ask", {"query": BONN, "tops": 3}, "Extra inputs are not permitted"),
            ("ask", {"query": BONN, "top": 0}, "greater than or equal to 1"),
            ("ask", {"query": "x" * 20_000}, "at most 10000 characters"),
            ("ask", {}, "Field required"),
            ("explain", {"query": BONN, "row": 500}, "hint: "),
            ("accept", {"subject": "Bonn", "relation": "located_on", "object": "Rhine"}, "Unknown tool"),
        ]:
            refused = await client.call_tool(name, arguments)
            assert refused.is_error and said in refused.content[0].text, refused.content
            assert "Traceback" not in refused.content[0].text
        assert (await call("find", text="bonn"))["found"]  # it goes on after errors

    session(entry(capsys, "atlas"), talk)


@pytest.mark.slow
def test_a_graph_without_a_model_and_a_file_for_accepted_facts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "g.tsv").write_text("Bonn\ton\tRhine\nUlm\ton\tDanube\n")
    assert main(["import", str(tmp_path / "g.tsv"), "--out", str(tmp_path / "g"), "--split", "none"]) == 0
    capsys.readouterr()

    async def talk(client: Client) -> None:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert tools["accept"].annotations is not None and tools["accept"].annotations.read_only_hint is False
        told = await client.call_tool("ask", {"query": "SELECT ?c { ?c :on :Rhine }"})
        assert told.structured_content is not None and told.structured_content["known"][0]["values"] == {"c": "Bonn"}
        refused = await client.call_tool("suggest", {})
        assert refused.is_error and "graph without a model" in refused.content[0].text
        fact = {"subject": "Ulm", "relation": "on", "object": "Rhine"}
        assert not (await client.call_tool("accept", fact)).is_error

    session(entry(capsys, tmp_path / "g", "--allow-updates", tmp_path / "accepted.tsv"), talk)
    assert (tmp_path / "accepted.tsv").read_text() == "Ulm\ton\tRhine\n"


def test_without_the_sdk_the_command_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("biqe.cli.mcp.find_spec", lambda name: None)
    assert main(["mcp", "atlas"]) == 2
    assert "pip install 'biqe[agents]'" in capsys.readouterr().err


def test_the_entry_of_a_client_starts_this_python(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    started = entry(capsys, "atlas", "--abstain-below", "0.3")
    assert started == {"command": sys.executable, "args": ["-m", "biqe", "mcp", "atlas", "--abstain-below", "0.3"]}
