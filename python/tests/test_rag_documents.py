"""Documents: whatever files are written in, their text; and of what is none, why."""

from __future__ import annotations

import errno
import gzip
import os
import resource
import subprocess
from pathlib import Path

import pytest
from packed import docx, epub, notebook, pdf, zipped
from unreadable import refuse

from bench.words import Words
from scotfree.rag import documents, splitting
from scotfree.rag.documents import Document, Unread, files, read
from scotfree.rag.formats import html, plain
from scotfree.rag.formats import notebook as notebook_format
from scotfree.rag.formats import pdf as pdf_format
from scotfree.rag.formats.content import Content
from scotfree.rag.splitting import Splitter

HTML = """<html><head><title>Not read</title><script>let no = 1;</script></head>
<body><nav>Menu</nav><h1>Log rotation</h1><p>Keeps the disk&nbsp;free.</p></body></html>"""
# Ten of them, each ten times the one before, would be gigabytes.
ENTITIES = '<!DOCTYPE d [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;">]><d>&b;</d>'


def gzipped(data: bytes) -> bytes:
    """The same bytes at any time: a test's name must not differ from one process to the next."""
    return gzip.compress(data, mtime=0)


@pytest.mark.parametrize(
    ("name", "data", "text"),
    [
        ("a.txt", "\ufeffGröße".encode(), "Größe"),
        ("old.txt", "Größe".encode("latin-1"), "Größe"),
        ("wide.txt", "Größe".encode("utf-16"), "Größe"),
        ("wide.txt", b"\xfe\xff" + "Größe".encode("utf-16-be"), "Größe"),
        ("wider.txt", "Größe".encode("utf-32"), "Größe"),
        ("WIDE.TXT.GZ", gzipped("Größe".encode("utf-16")), "Größe"),
        ("a.md", b"# Logs", "# Logs"),
        ("a.html", HTML.encode(), "Log rotation\nKeeps the disk\N{NO-BREAK SPACE}free."),
        ("a.pdf", pdf("Rotate the logs"), "Rotate the logs"),
        ("a.py", b"def rotate(): ...", "def rotate(): ..."),
        ("README", b"Read me", "Read me"),
        ("changelog.gz", gzipped(b"* First release"), "* First release"),
        ("a.docx", docx([("Heading1", "Logs"), ("Normal", "Rotate &amp; keep")]), "Logs\nRotate & keep"),
        ("a.epub", epub({"b.xhtml": "<p>First</p>", "a.xhtml": "<p>Then</p>"}), "First\n\nThen"),
        (
            "a.ipynb",
            notebook([("markdown", "# Logs"), ("code", "rotate()\nkeep()")]),
            "# Logs\n\nrotate()\nkeep()",
        ),
        ("page.html.gz", gzipped(HTML.encode()), "Log rotation\nKeeps the disk\N{NO-BREAK SPACE}free."),
    ],
)
def test_a_files_text(tmp_path: Path, name: str, data: bytes, text: str) -> None:
    (tmp_path / name).write_bytes(data)
    document = read(tmp_path / name)
    assert document.text.strip() == text
    assert document.name == str(tmp_path / name) and document.is_markdown == (name == "a.md")


@pytest.mark.parametrize(
    ("name", "data", "why"),
    [
        ("a.bin", b"\x7fELF\0\0", "no text"),
        ("empty.txt", b" \n", "has no text"),
        ("wide.txt", b"\xff\xfea", "begins as UTF-16 and is none"),
        ("wide.txt", b"\xff\xfea\0\0\0", "is no text"),
        ("cut.gz", gzipped(b"text " * 100)[:20], "ended before"),
        ("no.gz", b"not gzipped", "Not a gzipped"),
        ("no.pdf", b"not a PDF", "no PDF"),
        ("no.docx", b"not a ZIP", "cannot be unpacked"),
        ("cut.epub", epub({"a.xhtml": "<p>First</p>"})[:200], "cannot be unpacked"),
        ("other.docx", zipped({"a": "b"}), "no word/document.xml in it"),
        ("bad.docx", zipped({"word/document.xml": "<w:document"}), "document.xml in it is no XML"),
        ("entities.docx", zipped({"word/document.xml": ENTITIES}), "document.xml in it declares entities"),
        ("deep.docx", zipped({"word/document.xml": "<a>" * 300}), "more than 200 deep"),
        ("none.epub", zipped({"META-INF/container.xml": "<container/>"}), "names no book"),
        (
            "locked.epub",
            epub({"a.xhtml": "x"}, **{"META-INF/encryption.xml": '<e URI="OPS/text/a.xhtml"/>'}),
            "is encrypted",
        ),
        ("empty.epub", epub({}), "has no text"),
        ("no.ipynb", b"[1]", "no notebook"),
        ("deep.ipynb", b'{"cells":' + b"[" * 900, "no notebook"),
        ("odd.ipynb", b'{"cells": [{"cell_type": "code", "source": [1]}]}', "no notebook"),
        ("bomb.docx", zipped({"word/document.xml": "<a>" + " " * 20_000}), "larger than 0 MiB when unpacked"),
        ("bomb.epub", epub({"a.xhtml": "x" * 600, "b.xhtml": "x" * 600}), "larger than 0 MiB when unpacked"),
        ("long.txt", b"x" * 2000, "larger than"),
        ("long.gz", gzipped(b"x" * 2000), "larger than"),
    ],
)
def test_why_a_file_is_no_document(
    tmp_path: Path, name: str, data: bytes, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "BYTES_MAX", 1500)
    monkeypatch.setattr("scotfree.rag.formats.packed.DEPTH_MAX", 200)
    (tmp_path / name).write_bytes(data)
    with pytest.raises(Unread, match=why):
        read(tmp_path / name)


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, tmp_path / "absent"):
        with pytest.raises(Unread):
            read(path)


def test_hidden_files_are_not_read_and_the_order_is_that_of_names(tmp_path: Path) -> None:
    for name in ("b/two", "b/.git/config", "a/one", ".hidden", "c"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / ".loop").symlink_to(tmp_path)
    linked: list[Path] = []
    found = files(tmp_path, linked=linked.append)
    assert [str(path.relative_to(tmp_path)) for path in found] == ["c", "a/one", "b/two"]
    assert linked == [tmp_path / "loop"], "it is told, but not of hidden ones"


def test_a_path_may_be_a_text(tmp_path: Path) -> None:
    (tmp_path / "a.docx").write_bytes(docx([("Normal", "Rotate")]))
    assert read(str(tmp_path / "a.docx")) == read(tmp_path / "a.docx")
    with pytest.raises(Unread, match="not there"):
        read("nowhere.txt")


def test_the_suffix_is_that_of_what_is_packed(tmp_path: Path) -> None:
    for name, suffix in (("notes.txt.gz", ".txt"), ("NOTES.MD.GZ", ".md"), ("README.gz", ""), ("a.TXT", ".txt")):
        (tmp_path / name).write_bytes(gzipped(b"words") if name.lower().endswith("gz") else b"words")
        assert read(tmp_path / name).metadata == {"suffix": suffix}


def test_passages_are_the_document_and_none_is_too_long() -> None:
    sentences = [f"This is sentence number {place} of a text that goes on." for place in range(60)]
    text = "\n\n".join(" ".join(sentences[at : at + 6]) for at in range(0, 60, 6))
    splitter = Splitter(Words(tokens_max=42))
    for is_markdown in (False, True):
        passages = splitter.split(Document("a", text, is_markdown=is_markdown))
        assert "".join("".join(passage.text for passage in passages).split()) == "".join(text.split())
        assert all(text[passage.start :].startswith(passage.text) for passage in passages)
        counts = [len(passage.text.split()) for passage in passages]
        assert max(counts) <= 40 and sum(counts) / len(counts) > 15


def test_places_are_letters_not_bytes() -> None:
    text = "Größe " * 50 + "\n\n" + "東京 " * 50
    passages = Splitter(Words(tokens_max=22)).split(Document("a", text))
    assert all(text[passage.start :].startswith(passage.text) for passage in passages) and len(passages) > 4


def test_what_cannot_be_looked_at_is_told_from_what_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dead").symlink_to(tmp_path / "absent")
    (tmp_path / "text").write_text("words")
    with pytest.raises(Unread) as none:
        read(tmp_path / "dead")
    monkeypatch.setattr(documents, "_bytes", lambda _: (_ for _ in ()).throw(OSError(errno.EIO, "broken")))
    with pytest.raises(Unread) as unseen:
        read(tmp_path / "text")
    assert not none.value.is_unseen and unseen.value.is_unseen


def test_a_folder_that_cannot_be_read_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a/x", "b/y", "c"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("words")
    refuse(monkeypatch, "a")
    told: list[Path] = []
    found = list(files(tmp_path, lambda path, _: told.append(path)))
    assert found == [tmp_path / "c", tmp_path / "b/y"] and told == [tmp_path / "a"]


def test_folders_may_lie_deep_in_each_other(tmp_path: Path) -> None:
    here = os.open(tmp_path, os.O_RDONLY)
    try:
        for _ in range(1_200):
            os.mkdir("d", dir_fd=here)
            here, above = os.open("d", os.O_RDONLY, dir_fd=here), here
            os.close(above)
        os.close(os.open("x.txt", os.O_CREAT | os.O_WRONLY, dir_fd=here))
        (found,) = files(tmp_path, lambda *_: pytest.fail("it can be read"))
    finally:
        os.close(here)
        # Python's own way to remove folders, which pytest takes, is too deep for itself.
        subprocess.run(["rm", "-rf", tmp_path / "d"], check=True)
    assert found.name == "x.txt" and len(found.parts) > 1_200


def test_names_and_letters_that_nobody_can_write_end_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = Path(os.fsdecode(bytes(tmp_path) + b"/\xff.txt"))
    odd.write_text("words")
    with pytest.raises(Unread, match=r"no UTF-8"):
        read(odd)
    (tmp_path / "a.txt").write_text("words")
    monkeypatch.setattr(documents, "_plain", lambda _: Content("half \ud800 a letter"))
    assert read(tmp_path / "a.txt").text == "half ? a letter"


def test_elements_deep_in_each_other_are_not_parsed() -> None:
    assert html.read("<div>" * 100 + "text").text == "text"
    # As old pages have it: what a parser ends by itself is not counted.
    assert html.read("<p>text" * 6_000).text.count("text") == 6_000
    with pytest.raises(Unread, match="512 deep"):
        html.read("<div>" * 400_000 + "text")


def test_elements_without_number_are_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html, "ELEMENTS_MAX", 100)
    # What ends, and what stands in an attribute or a text, is no element.
    assert html.read("<p title='<b>'>1 < 2</p>" * 100).text.count("1") == 100
    with pytest.raises(Unread, match="more than 100 elements"):
        html.read("<p>text</p>" * 101)


def test_whatever_a_library_says_of_a_pdf_it_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> object:
        raise AssertionError("of its own")

    monkeypatch.setattr("pypdf.PdfReader", fails)
    with pytest.raises(Unread, match="no PDF that can be read: of its own"):
        pdf_format.read(b"%PDF-1.4")


def test_a_long_text_is_split_in_parts_at_paragraphs() -> None:
    text = "\n\n".join(f"Paragraph {place} has some words to say." for place in range(3_000))
    parts = list(splitting._parts(text))
    assert len(parts) > 3 and "".join(part for _, part in parts) == text
    assert all(text[at : at + len(part)] == part and len(part) <= splitting.PART_LETTERS for at, part in parts)
    assert all(part.endswith("\n\n") for _, part in parts[:-1])
    assert [len(part) for _, part in splitting._parts("x" * 70_000)] == [32_768, 32_768, 4_464]
    split = Splitter(Words()).split(Document("long", text))
    assert all(text[passage.start :].startswith(passage.text) for passage in split)
    assert "".join("".join(passage.text for passage in split).split()) == "".join(text.split())


@pytest.mark.parametrize(
    ("page", "text"),
    [
        (
            "<p>A <b>b</b>old w<i>or</i>d, a <a href=x>link</a>\n and <code>code</code>.",
            "A bold word, a link and code.",
        ),
        ("<p>one<p>two<div>three<span>four</span></div>five", "one\n\ntwo\n\nthreefour\n\nfive"),
        ("a<br>b<ul><li>c<li>d</ul>e", "a\nb\n\nc\nd\n\ne"),
        ("<table><tr><th>a<th>b<tr><td>1<td>2</table>", "a\tb\n1\t2"),
        ("<p>see<pre>if a:\n    <b>b</b>()\n</pre>then", "see\n\nif a:\n    b()\n\n\nthen"),
        ("<h2>Logs <small>now</small></h2><p>Rotate</p><h3>Keep</h3>some", "Logs now\nRotate\n\nKeep\nsome"),
        ("a<script>b</script><style>c</style><template>d</template><!-- e -->f", "af"),
        ("a<my-part>b</my-part>c", "abc"),
        ("<p>a \n\t b  c\nd <b>\r e </b> f\N{NO-BREAK SPACE} g", "a b c d e f\N{NO-BREAK SPACE} g"),
        ("<table><td>a<p>b<td>c <br> d</table>e", "a\n\nb\n\nc\nd\n\ne"),
        ("<h1> </h1><h2>a</h2> b <div>c", "a\nb\n\nc"),
        ("<p>a" + " " * 300_000 + "b" + "\n " * 100_000 + "c", "a b c"),
    ],
)
def test_what_stands_within_a_line_of_html_ends_nothing(page: str, text: str) -> None:
    assert html.read(page).text == text


def test_the_pages_of_this_machine_have_lines_that_go_on() -> None:
    """Debian's own, where they are: each heading stands where it is said to, no word is lost or cut."""
    pages = [path for path in sorted(Path("/usr/share/doc").glob("*/*.html"))[:40] if path.is_file()]
    for page in pages:
        parsed = html.read(page.read_text(errors="replace"))
        for heading in parsed.outline.headings:
            assert " ".join(parsed.text[heading.start :][:2_000].split()).startswith(heading.text), page
        assert not [line for line in parsed.text.split("\n") if "<p>" in line.lower()], page


def test_a_zip_of_too_many_files_is_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scotfree.rag.formats.packed.FILES_MAX", 3)
    (tmp_path / "a.epub").write_bytes(epub({f"{place}.xhtml": "x" for place in range(3)}))
    with pytest.raises(Unread, match="more than 3 files"):
        read(tmp_path / "a.epub")


def test_a_zip_says_nothing_untrue_of_its_sizes(tmp_path: Path) -> None:
    """The size that is said is not believed: what is unpacked is counted."""
    data = bytearray(docx([("Normal", "words " * 10_000)]))
    at = data.index(b"PK\x01\x02")
    data[at + 24 : at + 28] = (100).to_bytes(4, "little")
    (tmp_path / "a.docx").write_bytes(data)
    with pytest.raises(Unread, match=r"cannot be unpacked|no XML"):
        read(tmp_path / "a.docx")


def test_long_lines_of_signs_are_read_in_no_time() -> None:
    """Each took minutes, if a rule looked at it letter by letter again and again."""
    for text in (
        "# " + " " * 300_000 + "x",
        "-" * 300_000 + "x",
        "---\n" * 100_000,
        "title:" + " " * 300_000,
        "`" * 300_000,
    ):
        assert plain.markdown(text).text == text


def test_of_words_documents_what_is_shown_is_read(tmp_path: Path) -> None:
    paragraphs = [
        ("berschrift2", "Part"),
        ("Normal", "one</w:t><w:tab/><w:t>two</w:t><w:br/><w:t>three"),
        ("Normal", "</w:t><w:del><w:delText>gone</w:delText></w:del><w:t>kept"),
        ("Normal", "</w:t><mc:Choice><w:t>box</w:t></mc:Choice><mc:Fallback><w:t>box</w:t></mc:Fallback><w:t>"),
    ]
    (tmp_path / "a.docx").write_bytes(docx(paragraphs, title="A title"))
    document = read(tmp_path / "a.docx")
    assert document.text == "Part\none\ttwo\nthree\n\nkept\n\nbox\n\n"
    assert document.outline.title == "A title"
    assert [(one.start, one.level, one.text) for one in document.outline.headings] == [(0, 2, "Part")]


def test_of_a_book_the_chapters_are_those_of_its_list(tmp_path: Path) -> None:
    chapters = {"b%20c.xhtml": "<h1>B</h1><p>one</p>", "a.xhtml": "<p>two</p>"}
    pages = {"OPS/text/b c.xhtml": chapters["b%20c.xhtml"]}
    (tmp_path / "a.epub").write_bytes(epub(chapters, "The book", **pages))
    document = read(tmp_path / "a.epub")
    assert document.text == "B\none\n\ntwo" and document.outline.title == "The book"
    assert document.outline.starts == (0, 7) and document.outline.unit == "chapter"


def test_a_notebook_of_an_older_version_is_read() -> None:
    old = b'{"worksheets": [{"cells": [{"cell_type": "code", "input": ["a\\n", "b"]}]}]}'
    assert notebook_format.read(old.decode()).text == "a\nb"


def test_elements_that_were_not_begun_hide_no_depth(tmp_path: Path) -> None:
    for page in ("<div></span>" * 6_000, "<div title='</div>'>" * 6_000, '<div title = "</div>">' * 6_000):
        path = tmp_path / "deep.html"
        path.write_text(page)
        with pytest.raises(Unread, match="deep"):
            read(path)
    (path := tmp_path / "wide.html").write_text("<div>text</div></span>" * 6_000)
    assert read(path).text.count("text") == 6_000


def test_elements_within_a_line_that_nobody_ends_are_not_begun_again_in_each_block() -> None:
    """As browsers do it, 4 letters would become two hundred elements."""
    page = "<p>" + "".join(f"<b id='{at} > 1'>" for at in range(200)) + "<p>x" * 12_000
    began = memory_kib()
    assert html.read(page).text.count("x") == 12_000
    assert memory_kib() - began < 200 << 10
    assert (
        html.read('<p>wo<b>r</b>d <a href="x>y" title=z>link</a><I>s</I><abbr>no</abbr></p>').text
        == "word linksno"
    )
    assert html.read("<p>a <a name='unended>b</a></p>").text.startswith("a")


def memory_kib() -> int:
    """The most that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
