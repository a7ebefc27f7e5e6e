"""The tools over the Model Context Protocol, on standard input and output."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.tools import Tool
from mcp_types import ToolAnnotations
from pydantic import ConfigDict

from biqe.agents.tools import Tools
from biqe.errors import BiqeError


def build(tools: Tools, version: str) -> MCPServer[Any]:
    """The server of these tools."""
    read: list[Callable[..., dict[str, Any]]] = [tools.schema, tools.find, tools.ask, tools.explain, tools.suggest]
    offered = [_tool(function, writes=False) for function in read]
    if tools.accepted is not None:
        offered.append(_tool(tools.accept, writes=True))
    # Standard output is the protocol's; the SDK logs to standard error.
    return MCPServer("biqe", version=version, instructions=tools.instructions(), tools=offered, log_level="WARNING")


def _tool(function: Callable[..., dict[str, Any]], *, writes: bool) -> Tool:
    @functools.wraps(function)
    def guarded(**arguments: Any) -> dict[str, Any]:
        try:
            return function(**arguments)
        except BiqeError as error:
            # The agent reads what is wrong, and the hint. Anything else is a fault of ours: the SDK logs it and hides
            # its text.
            raise ToolError(str(error)) from error

    tool = Tool.from_function(
        guarded,
        annotations=ToolAnnotations(
            read_only_hint=not writes, destructive_hint=False, idempotent_hint=True, open_world_hint=False
        ),
    )
    # The SDK drops arguments that a tool does not have, so that a misspelt one would go unnoticed.
    arguments = tool.fn_metadata.arg_model
    arguments.model_config = ConfigDict(**{**arguments.model_config, "extra": "forbid"})
    arguments.model_rebuild(force=True)
    tool.parameters = arguments.model_json_schema(by_alias=True)
    return tool
