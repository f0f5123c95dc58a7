"""The page in a browser: what was found, where the time went, an answer as it is written; nothing but text."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from chromium import TESTS, chromium
from language_server import MODEL, Asked, LanguageServer, chunk, end, language_server
from served_page import serving

from bench.words import Words
from scotfree.loopback import Server
from scotfree.rag import Document, Endpoint, Index

pytestmark = TESTS
EVIL = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
DOCUMENTS = [
    Document("violin.txt", "a violin has four strings", {"kind": "instrument", "strings": 4}),
    Document("cello.txt", "a cello has four strings too", {"kind": "instrument", "strings": 4}),
    Document("player.txt", "who plays with strings", {"kind": "person", "_content": "a library's own"}),
    Document(f"{EVIL}.txt", f"evil {EVIL}", {"kind": EVIL}),
]


@dataclass
class Seen:
    """A page, with what it asked for elsewhere and complained of."""

    page: Any
    server: Server
    elsewhere: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def note_request(self, asked: Any) -> None:
        """Of another server than the page's."""
        if not asked.url.startswith(self.server.url):
            self.elsewhere.append(asked.url)

    def note_complaint(self, said: Any) -> None:
        """Of the browser."""
        if said.type in ("error", "warning"):
            self.complaints.append(said.text)

    def note_error(self, error: Any) -> None:
        """Of the page's script."""
        self.complaints.append(str(error))

    def search(self, question: str) -> None:
        """Asks, and waits until all is there."""
        self.begin(question)
        self.page.wait_for_selector("body[aria-busy=false]")

    def begin(self, question: str) -> None:
        """Asks."""
        self.page.fill("#question", question)
        self.page.press("#question", "Enter")

    def names(self) -> list[str]:
        """The documents of the passages, in their order."""
        return [name.inner_text() for name in self.page.query_selector_all("#hits .name")]

    def stages(self) -> list[str]:
        """The stages that are shown."""
        return [name.inner_text() for name in self.page.query_selector_all("#stages tbody th")]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as launched:
        yield launched


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    with Index.build(tmp_path_factory.mktemp("page") / "index", DOCUMENTS, Words(), keep="codes") as built:
        yield built


@pytest.fixture(scope="module")
def language() -> Iterator[LanguageServer]:
    with language_server() as running:
        yield running


@contextmanager
def opened(
    browser: Any, index: Index, model: Endpoint | None = None, *, width: int = 1280, scheme: str = "light"
) -> Iterator[Seen]:
    """The page, with the index described."""
    with serving(index, model) as server:
        context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
        seen = Seen(context.new_page(), server)
        seen.page.on("request", seen.note_request)
        seen.page.on("console", seen.note_complaint)
        seen.page.on("pageerror", seen.note_error)
        seen.page.goto(server.url)
        seen.page.wait_for_selector("#extent:not(:empty)")
        yield seen
        context.close()


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (360, "dark")])
def test_a_search_shows_passages_and_where_its_time_went(
    browser: Any, index: Index, width: int, scheme: str
) -> None:
    with opened(browser, index, width=width, scheme=scheme) as seen:
        assert "4 passages of 4 documents" in seen.page.inner_text("#extent")
        assert not seen.page.is_visible("#model"), "there is none"
        seen.search("four strings")
        assert seen.names()[:3] == ["violin.txt", "cello.txt", "player.txt"]
        assert "kind: person" in seen.page.inner_text("#hits") and "library" not in seen.page.inner_text("#hits")
        assert seen.page.inner_text("#hits .passage >> nth=0") == "a violin has four strings"
        assert seen.stages()[0] == "embed query" and {"regenerate", "rerank", "load"} <= set(seen.stages())
        bars = [bar.bounding_box()["width"] for bar in seen.page.query_selector_all("#stages .bar span")]
        room = seen.page.query_selector("#stages .bar").bounding_box()["width"]
        assert len(bars) == len(seen.stages()) and all(0 < bar <= room for bar in bars)
        assert room * 0.9 < sum(bars) < room + 2 * len(bars), "together they are the whole"
        counts = [each.inner_text() for each in seen.page.query_selector_all("#counts dd")]
        assert counts[0] == "4" and int(counts[1]) + int(counts[2]) == 4
        assert seen.page.evaluate("document.documentElement.scrollWidth") <= width
        ground = seen.page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (ground == "rgb(22, 24, 28)") == (scheme == "dark")
        assert seen.elsewhere == [] and seen.complaints == []


def test_a_search_is_narrowed_and_takes_words(browser: Any, index: Index) -> None:
    with opened(browser, index) as seen:
        seen.page.select_option("[data-key=kind]", label="person")
        seen.page.fill("#count", "2")
        seen.search("four strings")
        assert seen.names() == ["player.txt"]
        seen.page.select_option("[data-key=kind]", label="any")
        seen.page.select_option("[data-key=strings]", label="4")
        seen.search("four strings")
        assert seen.names() == ["violin.txt", "cello.txt"] and "words" not in seen.stages()
        seen.page.check("#words")
        seen.search("too")
        assert seen.names()[0] == "cello.txt" and "words" in seen.stages()
        assert seen.complaints == []


def test_what_documents_say_is_text(browser: Any, index: Index) -> None:
    with opened(browser, index) as seen:
        seen.search("evil")
        assert EVIL in seen.page.inner_text("#hits .passage >> nth=0") and seen.names()[0] == f"{EVIL}.txt"
        assert seen.page.query_selector("#hits img, #hits script, #where img") is None
        assert seen.page.title() == "Search" and seen.elsewhere == []
        # The plant: were it markup, the page's policy would still not let it run.
        seen.page.evaluate("(text) => { document.querySelector('#hits').innerHTML = text; }", EVIL)
        seen.page.wait_for_selector("#hits img", state="attached")
        assert (
            seen.page.evaluate("fetch('http://127.0.0.1:9/').then(() => 'reached', (error) => error.name)")
            == "TypeError"
        )
        assert any("Content Security Policy" in complaint for complaint in seen.complaints)
        assert seen.page.title() == "Search"


def test_an_answer_is_shown_as_it_is_written_and_cites(
    browser: Any, index: Index, language: LanguageServer
) -> None:
    is_seen = threading.Event()

    def writes(asked: Asked) -> None:
        asked.begin()
        asked.event(chunk(content="Four <b>strings</b> [1"))
        assert is_seen.wait(30)
        asked.event(chunk(content="], says [9]."))
        asked.event(end("length"))

    language.answering = writes
    with opened(browser, index, Endpoint(language.url, MODEL, key="")) as seen:
        assert seen.page.inner_text("#model").strip() == f"let {MODEL} answer ({language.url})"
        seen.begin("four strings")
        seen.page.locator("#text", has_text="[1").wait_for()
        assert seen.page.inner_text("#text") == "Four <b>strings</b> [1"
        assert seen.page.inner_text("#status") == "4 passages; the model reads them…"
        assert "prefill" not in seen.stages() and seen.names()
        is_seen.set()
        seen.page.wait_for_selector("body[aria-busy=false]")
        assert seen.page.inner_text("#text") == "Four <b>strings</b> [1], says [9]."
        assert seen.page.query_selector("#text b") is None
        (link,) = seen.page.query_selector_all("#text a")
        link.click()
        assert seen.page.inner_text("#hits li:target .name") == "violin.txt"
        assert seen.page.inner_text("#status") == "Answered from 4 passages."
        assert seen.stages()[-2:] == ["prefill", "decode"]
        assert "retrieval" in seen.page.inner_text("#first") and "prefill" in seen.page.inner_text("#first")
        assert seen.page.inner_text("#ended") == f"{MODEL}; cut at its limit of tokens"
        seen.page.uncheck("#with-model")
        seen.search("four strings")
        assert not seen.page.is_visible("#written") and seen.complaints == []


def test_a_new_question_ends_the_one_before(browser: Any, index: Index, language: LanguageServer) -> None:
    is_left = threading.Event()

    def waits(asked: Asked) -> None:
        asked.begin()
        asked.event(chunk(content="the first"))
        assert asked.rfile.read() == b""
        is_left.set()

    language.answering = waits
    with opened(browser, index, Endpoint(language.url, MODEL, key="")) as seen:
        seen.begin("four strings")
        seen.page.locator("#text", has_text="the first").wait_for()
        seen.page.uncheck("#with-model")
        seen.search("who plays")
        assert is_left.wait(30)
        assert seen.names()[0] == "player.txt"
        assert not seen.page.is_visible("#written") and not seen.page.is_visible("#error")


def test_what_is_wrong_is_shown(browser: Any, index: Index, language: LanguageServer) -> None:
    language.answering = lambda asked: asked.refuse(401, "")
    with opened(browser, index, Endpoint(language.url, MODEL, key="")) as seen:
        seen.search("four strings")
        assert "it wants a key; put its key into SCOTFREE_LLM_KEY" in seen.page.inner_text("#error")
        assert seen.names(), "what was found stays"
        seen.page.uncheck("#with-model")
        seen.search("four strings")
        assert not seen.page.is_visible("#error"), "it is over"
        seen.page.evaluate("document.querySelector('#question').removeAttribute('maxlength')")
        seen.search("x" * 2001)
        assert "`question` has 1 to 2000 letters" in seen.page.inner_text("#error")
        assert not seen.page.is_visible("#found")
        seen.page.fill("#count", "")
        seen.begin("four strings")
        assert seen.page.query_selector("#count:invalid"), "the browser says so itself"
        seen.page.fill("#count", "5")
        with ExitStack() as others:
            for _ in range(4):
                others.enter_context(seen.server.site.questions["/ask"].turns.taken())
            seen.search("four strings")
            assert "4 questions are being answered" in seen.page.inner_text("#error")


def test_a_server_that_is_gone_is_told(browser: Any, tmp_path: Path) -> None:
    with (
        Index.build(tmp_path / "index", DOCUMENTS, Words(), keep="codes") as index,
        opened(browser, index) as seen,
    ):
        seen.server.socket.close()
        seen.server.shutdown()
        seen.search("four strings")
        assert "Failed to fetch" in seen.page.inner_text("#error")


TOKEN = "0123456789abcdef"


@contextmanager
def guarded(browser: Any, index: Index, host: str) -> Iterator[Seen]:
    """The page of a server that wants a token, which it asks for."""
    with serving(index, token=TOKEN, host=host) as server:
        context = browser.new_context()
        seen = Seen(context.new_page(), server)
        seen.page.on("request", seen.note_request)
        seen.page.goto(server.url)
        seen.page.wait_for_selector("#token-form:visible")
        yield seen
        context.close()


def test_a_token_is_asked_for_once_and_said_with_each_request(browser: Any, index: Index) -> None:
    # Where the server knows no name of its own, as others reach it.
    with guarded(browser, index, "0.0.0.0") as seen:
        urls: list[str] = []
        seen.page.on("request", lambda asked: urls.append(asked.url))
        assert "This server wants a token." in seen.page.inner_text("#error")
        assert not seen.page.is_visible("#form"), "nothing can be asked yet"
        for wrong in (TOKEN[:-1], "kein Schlüssel"):
            seen.page.fill("#token", wrong)
            seen.page.press("#token", "Enter")
            seen.page.locator("#error", has_text="This is not the token.").wait_for()
            assert not seen.page.is_visible("#form")
            assert seen.page.evaluate("sessionStorage.length") == 0, "what is wrong is not kept"
        seen.page.fill("#token", f" {TOKEN} ")
        seen.page.press("#token", "Enter")
        seen.page.wait_for_selector("#extent:not(:empty)")
        assert not seen.page.is_visible("#error") and not seen.page.is_visible("#token-form")
        seen.search("four strings")
        assert seen.names()[0] == "violin.txt"
        # It is known to this tab, and to no other.
        seen.page.reload()
        seen.page.wait_for_selector("#extent:not(:empty)")
        seen.search("who plays")
        assert seen.names()[0] == "player.txt"
        other = seen.page.context.new_page()
        other.goto(seen.server.url)
        other.wait_for_selector("#token-form:visible")
        assert seen.page.evaluate("localStorage.length") == 0 and seen.page.context.cookies() == []
        assert seen.elsewhere == [] and not any(TOKEN in url for url in urls)
        # A server that was started again with another one.
        seen.server.token = "f" * 16
        seen.search("four strings")
        assert "This is not the token." in seen.page.inner_text("#error")
        assert seen.page.is_visible("#token-form") and seen.page.evaluate("sessionStorage.length") == 0


def test_a_hit_names_where_else_it_stands_and_a_score(browser: Any, tmp_path: Path) -> None:
    same = [Document(f"{name}.txt", "drums are struck") for name in "abcde"]
    with Index.build(tmp_path / "index", same, Words()) as index, opened(browser, index) as seen:
        seen.search("drums")
        assert seen.names() == ["a.txt"]
        copies = "also in: b.txt, letter 0; c.txt, letter 0; d.txt, letter 0 and 1 more"
        assert seen.page.inner_text("#hits .copies") == copies
        assert "score" not in seen.page.inner_text("#hits .source >> nth=0")
