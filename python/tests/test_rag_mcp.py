"""The tools of an assistant's host: a process of their own, asked by the protocol's own client."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from served_page import PROGRAM

from bench.words import Words
from scotfree.rag import Document, Index, RagError, cli, mcp_server

LONG = "\n\n".join(" ".join(f"word{place}x{at}" for at in range(80)) for place in range(60))
DOCUMENTS = [
    Document("violin", "a violin has four strings", {"kind": "instrument", "strings": 4}),
    Document("player", "who plays with strings", {"kind": "person", "_content": "a library's own"}),
    Document("long", LONG, {"kind": "book"}),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("mcp") / "index"
    Index.build(made, DOCUMENTS, Words()).close()
    return made


def command(folder: Path) -> list[str]:
    return [sys.executable, "-c", PROGRAM, "mcp", "--index", str(folder)]


ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}


@asynccontextmanager
async def asking(folder: Path) -> AsyncIterator[Client]:
    program, *words = command(folder)
    async with Client(StdioServerParameters(command=program, args=words, env=ENVIRONMENT)) as client:
        yield client


async def call(client: Client, tool: str, **given: Any) -> tuple[bool, Any]:
    """Whether it is an error, and what is said."""
    result = await client.call_tool(tool, given)
    text = "".join(part.text for part in result.content)  # type: ignore[union-attr]
    if result.is_error:
        return True, text
    assert json.loads(text) == result.structured_content
    return False, result.structured_content


def test_it_is_asked_by_the_protocols_own_client(folder: Path) -> None:
    async def all_of_it() -> None:
        async with asking(folder) as client:
            for part in (tools, search, read, read_part_by_part, see_changes, refuse):
                await part(client, folder)

    asyncio.run(all_of_it())


async def tools(client: Client, folder: Path) -> None:
    found = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert found.keys() == {"search", "read_document"}
    assert all(tool.annotations and tool.annotations.read_only_hint for tool in found.values())
    assert found["search"].input_schema["required"] == ["question"]
    assert "$gte" in found["search"].input_schema["properties"]["where"]["description"]


async def search(client: Client, folder: Path) -> None:
    _, found = await call(client, "search", question="four strings", count=2)
    assert [hit["document"] for hit in found["hits"]] == ["violin", "player"]
    assert found["hits"][0]["location"] == {"letter": 0} and found["hits"][0]["similarity"] > 0
    assert found["hits"][1]["metadata"] == {"kind": "person"}
    where = {"strings": {"$exists": False}, "kind": {"$ne": "book"}}
    _, found = await call(client, "search", question="four strings", where=where, words=True)
    assert [hit["document"] for hit in found["hits"]] == ["player"]


async def read(client: Client, folder: Path) -> None:
    _, found = await call(client, "read_document", name="violin")
    assert found == {
        "document": "violin",
        "metadata": {"kind": "instrument", "strings": 4},
        "passages": [{"location": {"letter": 0}, "text": "a violin has four strings"}],
        "goes_on_at": None,
    }


async def read_part_by_part(client: Client, folder: Path) -> None:
    whole, letter, calls = "", 0, 0
    while letter is not None:
        _, found = await call(client, "read_document", name="long", letter=letter)
        texts = [passage["text"] for passage in found["passages"]]
        assert texts and sum(map(len, texts)) <= mcp_server.READ_LETTERS_MAX
        whole, letter, calls = whole + "".join(texts), found["goes_on_at"], calls + 1
    assert calls > 1 and "".join(whole.split()) == "".join(LONG.split())


async def see_changes(client: Client, folder: Path) -> None:
    """Of another process."""
    with Index(folder, Words()) as other:
        other.add([Document("drum", "drums are struck")])
        assert not (await call(client, "read_document", name="drum"))[0]
        other.remove(["drum"])
    assert (await call(client, "read_document", name="drum"))[0]


async def refuse(client: Client, folder: Path) -> None:
    """By errors that the model reads."""
    for tool, given, why in (
        ("read_document", {"name": "nobody"}, "there is no such document; name one as `search` does"),
        ("read_document", {"name": "violin", "letter": -1}, "greater than or equal to 0"),
        ("read_document", {}, "name"),
        ("search", {"question": ""}, "at least 1 character"),
        ("search", {"question": "x" * 2001}, "at most 2000 characters"),
        ("search", {"question": "x", "count": 0}, "greater than or equal to 1"),
        ("search", {"question": "x", "count": 10**9}, "less than or equal to 100"),
        ("search", {"question": "x", "where": {"k": {"$near": 1}}}, "there is no such operator; say $eq"),
        ("search", {"question": "x", "where": "k=1"}, "valid dictionary"),
        ("forget", {}, "Unknown tool"),
    ):
        is_error, said = await call(client, tool, **given)
        assert is_error and why in said, said
    # And it goes on.
    assert not (await call(client, "search", question="x"))[0]


PING = b'{"jsonrpc": "2.0", "id": 7, "method": "ping"}\n'


@contextmanager
def running(folder: Path, *lines: bytes) -> Iterator[subprocess.Popen[bytes]]:
    """The process, which has answered what was said last."""
    with subprocess.Popen(
        command(folder), env=ENVIRONMENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        try:
            assert process.stdin and process.stdout
            process.stdin.write(b"".join([*lines, PING]))
            process.stdin.flush()
            while json.loads(process.stdout.readline()).get("id") != 7:
                pass
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_it_ends_when_told_to(folder: Path, number: signal.Signals, code: int) -> None:
    with running(folder) as process:
        process.send_signal(number)
        assert process.wait(60) == code
        assert process.stderr and process.stderr.read() == b""


def test_it_ends_when_its_host_does_and_not_by_lines_that_are_none(folder: Path) -> None:
    with running(folder, b"{\n", b"[" * 5000 + b"\n", b"null\n", b"\xff\n") as process:
        _, said = process.communicate(timeout=60)
        assert (process.returncode, said) == (0, b"")


def test_without_an_index_it_is_said_how_to_make_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["mcp", "--index", str(tmp_path / "none")]) == 2
    assert "there is none; make it: scot rag index FOLDER" in capsys.readouterr().err


def test_without_the_sdk_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp.server.mcpserver", None)
    monkeypatch.delitem(sys.modules, "scotfree.rag.mcp_server")
    with pytest.raises(RagError, match=r"import mcp\.server\.mcpserver.*scotfree\[mcp\]"):
        importlib.import_module("scotfree.rag.mcp_server")
