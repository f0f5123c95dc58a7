"""What README and docs tell a reader to type is typed here, on data of the names that they give."""

from __future__ import annotations

import json
import random
import re
import shlex
from pathlib import Path

import pytest
import shop_story
import small_bert
import small_encoders
from language_server import WORDS, language_server

from scotfree.rag import cli as rag_cli
from scotfree.study import cli as study_cli
from scotfree.study.plan import cli as plan_cli

ROOT = Path(__file__).resolve().parents[2]
PAGES = (
    "README.md",
    "docs/read-your-tax.md",
    "docs/plan.md",
    "docs/cycle-tax.md",
    "docs/transform.md",
    "docs/watch.md",
)
PROGRAMS = {"study": study_cli.main, "plan": plan_cli.main}
# Not here: those that go on until they are interrupted (test_report_serve, test_watch_command), one that reads a
# device's recordings (test_plan_fit).
ELSEWHERE = (("study", "serve"), ("study", "watch"), ("plan", "fit"))
CALLS = 1500


def lines() -> list[str]:
    """Commands of all pages: those of fenced blocks, without the remarks behind them."""
    found = []
    for page in PAGES:
        blocks = re.findall(r"^```(\w*)\n(.*?)^```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
        for block in [block for language, block in blocks if not language]:
            found += [line for line in block.splitlines() if re.match(r"scot (study|plan) ", line)]
    return [re.split(r"\s{2,}| # ", line)[0] for line in found]


def zipkin(path: Path, seed: int) -> None:
    """Calls of one service from another, both sides."""
    chance, spans = random.Random(seed), []
    for call in range(CALLS):
        work = int(chance.lognormvariate(7, 0.4))
        shared = {"traceId": f"{seed * CALLS + call + 1:032x}", "id": f"{call + 1:016x}"}
        name, at = ("get", "put")[call % 2], 1_700_000_000_000_000 + call * 10_000
        client, server = {"serviceName": "Shop"}, {"serviceName": "Cart"}
        sides = (("CLIENT", at, work + 400, client), ("SERVER", at + 200, work, server))
        spans += [
            shared
            | {"kind": kind, "name": name, "timestamp": start, "duration": time, "localEndpoint": of}
            | ({"remoteEndpoint": server} if kind == "CLIENT" else {"shared": True})
            for kind, start, time, of in sides
        ]
    path.write_text(json.dumps(spans))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a reader stands: traces of now and of before, their stores, a budget, a recording."""
    for seed, name in enumerate(("traces", "old", "new")):
        (tmp_path / name).mkdir()
        zipkin(tmp_path / name / "spans.json", seed)
    for name in ("old.store", "new.store", "main.store", "branch.store", "report.store", "watch.live/store"):
        of = "old" if name in ("old.store", "main.store") else "new"
        words = ["ingest", str(tmp_path / of), "--store", str(tmp_path / name), "--quiet"]
        assert study_cli.main(words) == 0
    (budget,) = re.findall(r"```toml\n(\[\[budget.*?)```", (ROOT / "docs/plan.md").read_text(), re.DOTALL)
    (tmp_path / "budget.toml").write_text(budget)
    (tmp_path / "cart.txt").write_text("cart 7 1.0: 100 cycles:\n\t55f3 main+0x3 (/usr/bin/cart)\n\n" * 20)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_page_is_read() -> None:
    found = lines()
    assert len(found) >= 12
    for words in ("study report", "study compare", "study monitoring", "plan traces/", "plan capacity"):
        assert any(line.startswith(f"scot {words}") for line in found), words


def is_elsewhere(line: str) -> bool:
    return line.startswith(tuple(f"scot {program} {command}" for program, command in ELSEWHERE))


@pytest.mark.parametrize("line", sorted({line for line in lines() if not is_elsewhere(line)}))
def test_what_the_docs_say_can_be_typed(folder: Path, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, program, *words = shlex.split(line)
    assert PROGRAMS[program](words) == 0, capsys.readouterr().err
    if "-o" in words:
        assert (folder / words[words.index("-o") + 1]).exists()


def told() -> list[tuple[str, list[str]]]:
    """The commands of the page that goes along a question, each with the lines that it is said to print."""
    page = (ROOT / "docs/read-your-tax.md").read_text()
    found: list[tuple[str, list[str]]] = []
    for block in re.findall(r"^```console\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            if line.startswith("$ scot "):
                found.append((line.removeprefix("$ scot "), []))
            elif line != "…":
                found[-1][1].append(line)
    return found


def test_what_the_page_tells_of_the_shop_is_what_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shop_story.write(tmp_path)
    (budget,) = re.findall(r"```toml\n(.*?)```", (ROOT / "docs/read-your-tax.md").read_text(), re.DOTALL)
    (tmp_path / "budget.toml").write_text(budget)
    monkeypatch.chdir(tmp_path)
    commands = told()
    assert len(commands) >= 8
    codes = {}
    for command, lines_ in commands:
        program, *words = shlex.split(command)
        codes[command] = PROGRAMS[program](words)
        printed = capsys.readouterr()
        said = [line.rstrip() for line in (printed.out + printed.err).splitlines()]
        assert not [line for line in lines_ if line not in said], f"{command}:\n{printed.out}\n{printed.err}"
    worse = [command for command, code in codes.items() if code == 1]
    assert worse == ["study compare monday.store tuesday.store"] and set(codes.values()) == {0, 1}
    # The pages of the table of figures are what was said to be there.
    assert (tmp_path / "tuesday.html").exists() and (tmp_path / "tuesday.parquet/methods.parquet").exists()


def judged_collection(folder: Path) -> None:
    """One in BEIR's layout, with a question."""
    (folder / "qrels").mkdir(parents=True)
    texts = {"violin": "A violin has four strings.", "drum": "Drums are struck with sticks."}
    rows = [json.dumps({"_id": name, "text": text}) for name, text in texts.items()]
    (folder / "corpus.jsonl").write_text("\n".join(rows))
    (folder / "queries.jsonl").write_text('{"_id": "1", "text": "which instrument has strings?"}')
    (folder / "qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\n1\tviolin\t1\n")


def test_what_the_page_of_retrieval_says_can_be_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (ROOT / "docs/rag.md").read_text()
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes/violin.txt").write_text("A violin has four strings.")
    (tmp_path / "notes/drum.txt").write_text("Drums are struck with sticks.")
    judged_collection(tmp_path / "cranfield")
    small_bert.write(tmp_path / "e5-small-v2")
    small_encoders.write_cross_encoder(tmp_path / "ms-marco-MiniLM-L6-v2")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "src").mkdir()
    (tmp_path / "src/tune.py").write_text("def tune(): ...")
    # Those that go on until they are interrupted are tried in test_rag_page and test_rag_watching.
    typed = re.findall(r"^scot rag (?!serve\b|.* --watch$)(.*)$", page, re.MULTILINE)
    assert len(typed) == 14
    with language_server() as server:
        for line in typed:
            assert rag_cli.main(shlex.split(line.replace("http://127.0.0.1:8080/v1", server.url))) == 0, line
    printed = capsys.readouterr().out
    assert printed.count("violin.txt") == 5 and "".join(WORDS) in printed
    assert re.search(r"^nDCG@10( +1\.000){3}$", printed, re.MULTILINE)
    # The server's one reply is an answer, and no grade.
    assert re.search(r"^  not graded( +1){3}$", printed, re.MULTILINE)
    example, chain, llama, planned = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(example, {})
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("violin instrument ['centroid search and scan', 'embed query', 'load'")
    assert second == "['cello', 'drum']"
    for framework in (chain, llama):
        exec(framework, {})
        assert capsys.readouterr().out == "['violin']\n"
    exec(planned, {})
    assert capsys.readouterr().out == "[] True\n"
