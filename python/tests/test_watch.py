"""Traces as they come: from OpenTelemetry's SDK to the page, each span counted once, as files are."""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
from html import unescape
from pathlib import Path

import duckdb
import pytest
from google.protobuf.json_format import MessageToJson
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from watched import HOST, ask, bytes_of, message, sdk_sends, watching

from scotfree.study.ingest.limits import Limits
from scotfree.study.ingest.lock import locked
from scotfree.study.ingest.run import ingest
from scotfree.study.report.serve.server import serve_latest
from scotfree.study.store import Store
from scotfree.study.trouble import StudyError
from scotfree.study.watch import watching as module
from scotfree.study.watch.answers import JSON, PROTOBUF
from scotfree.study.watch.segments import PARTS, Segments

SENDERS, SPANS = 10, 1_000


def test_what_the_sdk_sends_is_on_the_page(tmp_path: Path) -> None:
    with watching(tmp_path) as watched:
        assert "Nothing has come yet; 0 spans received" in watched.get("/")[1]
        sdk_sends(watched.watch.url(), 700)
        sdk_sends(watched.watch.url(), 500, service="shop", is_packed=True)
        watched.watch.round()
        status, fleet = watched.get("/")
        assert status == 200 and re.search(r"As of [0-9 :-]+, 1,200 calls; 1,200 spans received in", fleet)
        assert "none refused" in fleet and '<meta http-equiv="refresh" content="5">' in fleet
        for service in ("cart", "shop"):
            assert f'href="/service?name={service}"' in fleet


def test_many_senders_at_once_lose_nothing(tmp_path: Path) -> None:
    with watching(tmp_path) as watched:
        senders = [
            threading.Thread(
                target=sdk_sends, args=[watched.watch.url(), SPANS], kwargs={"service": f"of-{number}"}
            )
            for number in range(SENDERS)
        ]
        for sender in senders:
            sender.start()
        while any(sender.is_alive() for sender in senders):
            # Stores are made while they send.
            watched.watch.round()
        watched.watch.round()
        assert watched.watch.tally.spans == SENDERS * SPANS and not watched.watch.tally.refused
    assert Store.open(tmp_path / "store").manifest.spans == SENDERS * SPANS


@pytest.mark.parametrize("kind", [PROTOBUF, JSON])
def test_what_is_watched_counts_as_what_is_read_from_files(tmp_path: Path, kind: str) -> None:
    data = message(5)
    data.resource_spans[0].scope_spans[0].spans[1].trace_id = b"short"
    data.resource_spans[0].scope_spans[0].spans[3].span_id = b""
    text = MessageToJson(data, indent=None)
    # OTLP's JSON has ids in hexadecimal digits.
    spans = json.loads(text)
    for span, of in zip(
        spans["resourceSpans"][0]["scopeSpans"][0]["spans"],
        data.resource_spans[0].scope_spans[0].spans,
        strict=True,
    ):
        span |= {"traceId": of.trace_id.hex(), "spanId": of.span_id.hex()}
    (tmp_path / "spans.jsonl").write_text(json.dumps(spans))
    read = ingest([tmp_path / "spans.jsonl"], tmp_path / "read").manifest
    with watching(tmp_path / "live") as watched:
        body = data.SerializeToString() if kind == PROTOBUF else json.dumps(spans).encode()
        status, headers, answer = watched.post(body, kind)
        watched.watch.round()
        tally = watched.watch.tally
    assert status == 200 and headers["Content-Type"] == kind
    if kind == PROTOBUF:
        partial = ExportTraceServiceResponse.FromString(answer).partial_success
        rejected, why = partial.rejected_spans, partial.error_message
    else:
        partial = json.loads(answer)["partialSuccess"]
        rejected, why = int(partial["rejectedSpans"]), partial["errorMessage"]
    assert rejected == 2 and "trace's id is not of 16 bytes" in why
    live = Store.open(tmp_path / "live" / "store").manifest
    assert (live.records_in, live.dropped, live.spans) == (read.records_in, read.dropped, read.spans)
    assert (tally.spans, tally.rejected) == (read.records_in - read.dropped, read.dropped) == (3, 2)


@pytest.mark.parametrize(("kind", "body", "answer"), [(PROTOBUF, b"", b""), (JSON, b"{}", b"{}")])
def test_no_spans_are_no_error(tmp_path: Path, kind: str, body: bytes, answer: bytes) -> None:
    with watching(tmp_path) as watched:
        assert watched.post(body, kind)[::2] == (200, answer)
        assert watched.post(bytes_of(1), PROTOBUF)[::2] == (200, b"")


def test_only_spans_that_are_none_are_not_kept(tmp_path: Path) -> None:
    data = message(1)
    data.resource_spans[0].scope_spans[0].spans[0].trace_id = bytes(16)
    with watching(tmp_path) as watched:
        status, _, answer = watched.post(data.SerializeToString())
        watched.watch.round()
        assert status == 200
        assert ExportTraceServiceResponse.FromString(answer).partial_success.rejected_spans == 1
        assert not list((tmp_path / "segments").iterdir()) and len(list((tmp_path / "stores").iterdir())) == 1
        assert "1 span rejected" in watched.get("/")[1]


def test_a_large_resource_hides_no_spans_behind_it(tmp_path: Path) -> None:
    """A segment that begins with it does not tell by its beginning what it is."""
    data = message(2)
    line = data.resource_spans[0].resource.attributes.add(key="process.command_line")
    line.value.string_value = "x" * 100_000
    with watching(tmp_path) as watched:
        assert watched.post(data.SerializeToString())[0] == watched.post(bytes_of(5, first=10))[0] == 200
        watched.watch.round()
        assert ", 7 calls; 7 spans received" in watched.get("/")[1]


def test_a_method_stays_the_same_when_others_come(tmp_path: Path) -> None:
    with watching(tmp_path) as watched:
        watched.post(bytes_of(3, service="shop"))
        watched.watch.round()
        _, service = watched.get("/service?name=shop")
        (link,) = [unescape(found) for found in re.findall(r'href="(/method[^"]*)"', service)]
        # By its number it would now be the other one: numbers are in the order of names.
        watched.post(bytes_of(2, first=10, service="cart"))
        watched.watch.round()
        status, method = watched.get(link)
        assert status == 200 and "3 calls" in method and 'href="/service?name=shop"' in method


def test_one_call_is_looked_at_in_peace(tmp_path: Path) -> None:
    with watching(tmp_path) as watched:
        watched.post(bytes_of(1))
        watched.watch.round()
        _, call = watched.get("/trace?trace=1")
        assert "A call of" in call and "1 span received" in call and "refresh" not in call


def test_a_round_without_news_makes_no_store(tmp_path: Path) -> None:
    with watching(tmp_path) as watched:
        watched.post(bytes_of(1))
        watched.watch.round()
        newest = (tmp_path / "store").resolve()
        watched.watch.round()
        assert (tmp_path / "store").resolve() == newest
        watched.post(bytes_of(1, first=2))
        watched.watch.round()
        assert (tmp_path / "store").resolve() != newest
        # All of it is still in one file: segments are few.
        assert [path.name for path in (tmp_path / "segments").iterdir()] == [".000001.half"]
        # Whoever opened the one before reads on; those before it are gone.
        watched.post(bytes_of(1, first=3))
        watched.watch.round()
        assert len(list((tmp_path / "stores").iterdir())) == 2


def test_a_page_of_a_store_that_is_gone_meanwhile_is_of_the_next(tmp_path: Path) -> None:
    with watching(tmp_path) as watched:
        before = watched.watch.site.latest()
        # A page of it is under way, all the time.
        assert before.hold()
        for number in range(1, 4):
            watched.post(bytes_of(1, first=number))
            watched.watch.round()
        after, asked = watched.watch.site.latest(), [before]
        watched.watch.site.latest = lambda: asked.pop() if asked else after  # type: ignore[method-assign]
        with serve_latest(watched.watch.site.latest, (HOST, 0)) as page:
            thread = threading.Thread(target=page.handle_request)
            thread.start()
            status, _, html = ask(page, "/")
            thread.join()
        assert status == 200 and b", 3 calls;" in html


def test_the_next_watch_goes_on(tmp_path: Path) -> None:
    with watching(tmp_path) as watched:
        watched.post(bytes_of(3))
        watched.watch.end()
    with watching(tmp_path) as watched:
        assert re.search(r"As of [0-9 :-]+, 3 calls; 0 spans received", watched.get("/")[1])
        watched.post(bytes_of(4, first=10))
        watched.watch.round()
        assert ", 7 calls;" in watched.get("/")[1]


def test_what_is_old_is_dropped(tmp_path: Path) -> None:
    # Each message is a segment of its own.
    with watching(tmp_path, keep_s=60, bytes_max=PARTS * len(bytes_of(1))) as watched:
        for number in range(1, 4):
            watched.post(bytes_of(1, first=number))
            watched.watch.round()
        first, second, third = sorted((tmp_path / "segments").iterdir())
        newest = third.stat().st_mtime
        os.utime(first, (newest - 61, newest - 61))
        os.utime(second, (newest - 59, newest - 59))
        watched.watch.round()
        assert sorted((tmp_path / "segments").iterdir()) == [second, third]
        assert ", 2 calls;" in watched.get("/")[1]


def test_at_the_bound_senders_wait_until_the_oldest_are_dropped(tmp_path: Path) -> None:
    one = len(bytes_of(10)) + 4
    with watching(tmp_path, bytes_max=4 * one) as watched:
        for number in range(4):
            assert watched.post(bytes_of(10, first=1 + 10 * number))[0] == 200
            watched.watch.round()
        # A quarter is kept free from round to round.
        assert len(list((tmp_path / "segments").iterdir())) == 3
        assert watched.post(bytes_of(10, first=100))[0] == 200
        status, headers, answer = watched.post(bytes_of(10, first=200))
        assert status == 503 and headers["Retry-After"] == "1"
        assert "4" in Status.FromString(answer).message and Status.FromString(answer).code == 14
        watched.watch.round()
        assert watched.post(bytes_of(10, first=200))[0] == 200
        page = watched.get("/")[1]
        assert "1 as much as --max-bytes keeps" in page
        # Of six messages there are four.
        assert re.search(r"60 spans received .*; 20 spans \(0.0 MB\) dropped as the oldest, by --keep", page)


def test_a_segment_that_is_removed_is_told_once_and_the_rest_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Each message is a segment of its own.
    with watching(tmp_path, bytes_max=PARTS * len(bytes_of(1))) as watched:
        for number in range(1, 4):
            watched.post(bytes_of(1, first=number))
            watched.watch.round()
        (tmp_path / "segments" / "000002.otlp").unlink()
        for _ in range(2):
            watched.watch.round()
        assert capsys.readouterr().err.count("1 span (0.0 MB) that were kept are gone") == 1
        assert watched.post(bytes_of(1, first=4))[0] == 200
        watched.watch.end()
        page = watched.get("/")[1]
        assert ", 3 calls; 4 spans received" in page and "; 1 span (0.0 MB) gone; none refused" in page


def test_what_is_written_to_no_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with watching(tmp_path) as watched:
        assert watched.post(bytes_of(10))[0] == 200
        watched.watch.round()
        (half,) = (tmp_path / "segments").iterdir()
        half.unlink()
        status, headers, answer = watched.post(bytes_of(10, first=20))
        assert status == 503 and headers["Retry-After"] == "1"
        assert "was removed" in Status.FromString(answer).message
        # It is sent again, to a file that is there.
        assert watched.post(bytes_of(10, first=20, service="shop"))[0] == 200
        watched.watch.round()
        # As long as what was there before, and yet another.
        assert "/service?name=shop" in (page := watched.get("/")[1]) and "/service?name=cart" not in page
        (half,) = (tmp_path / "segments").iterdir()
        half.rename(tmp_path / "elsewhere")
        assert watched.post(bytes_of(10, first=40))[0] == 503
        watched.watch.round()
        assert "10 spans (0.0 MB) that were kept are gone" in capsys.readouterr().err
        shutil.rmtree(tmp_path / "segments")
        assert watched.post(bytes_of(10, first=40))[0] == 503
        watched.watch.end()
        page = watched.get("/")[1]
        assert "20 spans received in 2 requests" in page and "20 spans (0.0 MB) gone" in page


def test_a_store_s_memory_is_given_back_when_its_last_page_is_made(tmp_path: Path) -> None:
    with watching(tmp_path) as watched:
        before = watched.watch.site.latest()
        queries = before._queries
        assert queries._rows("SELECT current_setting('threads') AS threads") == [{"threads": 2}]
        assert before.hold()
        watched.post(bytes_of(1))
        watched.watch.round()
        assert queries.services() == []
        before.release()
        with pytest.raises(duckdb.ConnectionException):
            queries.services()
        assert not before.hold() and ", 1 call;" in watched.get("/")[1]


def test_a_process_that_makes_stores_may_die(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with watching(tmp_path) as watched:
        watched.post(bytes_of(3))
        watched.watch.round()
        process = watched.watch._builder._process
        assert process is not None
        process.kill()
        process.wait()
        watched.post(bytes_of(3, first=10))
        watched.watch.round()
        assert ", 3 calls;" in watched.get("/")[1] and "the store before stays" in capsys.readouterr().err
        watched.watch.round()
        assert ", 6 calls;" in watched.get("/")[1] and "stores are made again" in capsys.readouterr().err


def test_what_is_not_a_watch_s_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "stores").mkdir()
    settings = module.Settings(tmp_path, (HOST, 0), (HOST, 0), 5, 60, 1 << 20, Limits())
    with pytest.raises(StudyError, match="it holds other things; name a new folder with --store"):
        module.watch(settings)
    assert list(tmp_path.iterdir()) == [tmp_path / "stores"]
    with locked(tmp_path), pytest.raises(StudyError, match="is writing it"):
        module.watch(settings)


def test_a_port_that_is_taken_is_told(tmp_path: Path) -> None:
    with watching(tmp_path / "one") as watched:
        taken = watched.watch.receiver.server_address[1]
        settings = module.Settings(tmp_path / "two", (HOST, taken), (HOST, 0), 5, 60, 1 << 20, Limits())
        with pytest.raises(StudyError, match="name another with --listen"):
            module.Watch(settings)
        with pytest.raises(StudyError, match="name another with --serve"):
            module.serve_page(watched.watch.site, (HOST, taken))


def test_a_page_for_others_is_read_by_number_only(tmp_path: Path) -> None:
    """A name may be another site's, which was pointed at this machine."""
    with watching(tmp_path) as watched, serve_latest(watched.watch.site.latest, ("0.0.0.0", 0)) as page:
        thread = threading.Thread(target=page.serve_forever, args=[0.01])
        thread.start()
        try:
            port = page.server_address[1]
            assert ask(page, "/", headers={"Host": f"192.0.2.7:{port}"})[0] == 200
            assert ask(page, "/", headers={"Host": f"evil.example:{port}"})[0] == 421
        finally:
            page.shutdown()
            thread.join()
        assert ask(watched.page, "/", headers={"Host": f"192.0.2.7:{port}"})[0] == 421


def test_a_segment_that_was_under_way_at_a_kill_has_its_whole_messages(tmp_path: Path) -> None:
    segments = Segments(tmp_path, 1 << 20)
    segments.append(b"whole", 1)
    (half,) = tmp_path.iterdir()
    half.write_bytes(half.read_bytes() + (9).to_bytes(4, "big") + b"cut")
    again = Segments(tmp_path, 1 << 20)
    (path,) = again.files()
    assert path.read_bytes() == b"\0\0\0\5whole" and list(tmp_path.iterdir()) == [path]
    again.append(b"more", 1)
    again.sync(0)
    assert [file.name for file in again.files()] == ["000001.otlp", "000002.otlp"]
    (tmp_path / ".000003.half").write_bytes(b"\0\0")
    assert Segments(tmp_path, 1 << 20).files() == again.files() == sorted(tmp_path.iterdir())
