"""Who sends nonsense, too much, too slowly or half of it is told so, counted, and hurts nobody else."""

from __future__ import annotations

import errno
import gzip
import io
import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from socket import SHUT_WR, create_connection
from typing import Any

import pyarrow.parquet as pq
import pytest
from google.rpc.status_pb2 import Status
from watched import HOST, NOW_NS, Watched, ask, bytes_of, sdk_sends, watching

from scotfree.study.ingest.run import ingest
from scotfree.study.store import Store
from scotfree.study.watch.answers import JSON, PROTOBUF
from scotfree.study.watch.body import BODY_BYTES_MAX
from scotfree.study.watch.refusing import DISK, SLOW, Refused

BOMB = gzip.compress(bytes(BODY_BYTES_MAX + 1))
CUT = bytes_of(3)[:-5]
# A header, of which the library would take a hundred.
LONG = b"A: " + b"b" * 60_000 + b"\r\n"


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """One that hears all of it."""
    with watching(tmp_path_factory.mktemp("watch")) as watched:
        yield watched


@pytest.mark.parametrize(
    ("body", "kind", "headers", "status", "says"),
    [
        (b"nonsense", PROTOBUF, {}, 400, "the bytes are no OTLP message"),
        (CUT, PROTOBUF, {}, 400, "ends early"),
        (b"{", JSON, {}, 400, "ends early"),
        (b"[]", JSON, {}, 400, "expected an object"),
        (b'{"resourceSpans": 5}', JSON, {}, 400, "of other kinds"),
        (b"nonsense", PROTOBUF, {"Content_Encoding": "gzip"}, 400, "no gzip"),
        (gzip.compress(bytes_of(3), mtime=0)[:-9], PROTOBUF, {"Content_Encoding": "gzip"}, 400, "gzip ends early"),
        (b"", PROTOBUF, {"Content_Encoding": "gzip"}, 400, "gzip ends early"),
        (BOMB, PROTOBUF, {"Content_Encoding": "gzip"}, 413, "at most 20 MiB"),
        (bytes(BODY_BYTES_MAX + 1), PROTOBUF, {}, 413, "at most 20 MiB"),
        (b"x", PROTOBUF, {"Content_Encoding": "br"}, 415, "Content-Encoding br: only gzip is read"),
        (b"x", "text/plain", {}, 415, "only application/x-protobuf and application/json"),
        (bytes_of(1), PROTOBUF, {"Origin": "http://127.0.0.1:4318"}, 403, "pages do not send here"),
        (b"", PROTOBUF, {"Content_Length": "-1"}, 400, "no length"),
        (b"", PROTOBUF, {"Transfer_Encoding": "gzip"}, 400, "not chunked"),
    ],
)
def test_nonsense_is_refused_with_a_status(
    one: Watched, body: bytes, kind: str, headers: dict[str, str], status: int, says: str
) -> None:
    spans = one.watch.tally.spans
    found, said, answer = one.post(body, kind, **headers)
    assert found == status and "Retry-After" not in said
    if kind == PROTOBUF:
        assert said["Content-Type"] == PROTOBUF and says in Status.FromString(answer).message
        assert Status.FromString(answer).code in (3, 7, 8, 12)
    else:
        assert said["Content-Type"] == JSON and says in json.loads(answer)["message"]
    assert one.watch.tally.spans == spans
    assert one.post(bytes_of(2))[0] == 200


@pytest.mark.parametrize(
    ("verb", "path", "status"),
    [
        ("POST", "/v1/metrics", 404),
        ("POST", "/v1/logs", 404),
        ("POST", "/", 404),
        ("GET", "/v1/traces", 405),
        ("OPTIONS", "/v1/traces", 405),
    ],
)
def test_what_is_not_read_is_refused(one: Watched, verb: str, path: str, status: int) -> None:
    before = one.watch.tally.refused.total()
    found, headers, _ = ask(one.watch.receiver, path, verb, b"{}", {"Content-Type": JSON})
    assert found == status and (status != 405 or headers["Allow"] == "POST")
    assert one.watch.tally.refused.total() == before + 1


def spoken(watched: Watched, said: bytes, *, ends: bool = True) -> bytes:
    """What a connection is answered that says this."""
    with closing(create_connection((HOST, watched.watch.receiver.server_port), timeout=30)) as connection:
        connection.sendall(said)
        if ends:
            connection.shutdown(SHUT_WR)
        with connection.makefile("rb") as answer:
            return answer.read()


@pytest.mark.parametrize(
    ("said", "status", "says"),
    [
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"400", b"it speaks gRPC"),
        (b"\x16\x03\x01\x02\x00\x01\x00\r\n", b"400", b"it speaks TLS"),
        (bytes(range(256)) * 20, b"400", b"message"),
        (b"GET\r\n\r\n", b"400", b"message"),
        (b"POST /v1/traces HTTP/1.1\r\nContent-Type: application/json\r\n\r\n", b"411", b"neither Content-Length"),
        (b"POST /v1/traces HTTP/1.1\r\n" + b"A: b\r\n" * 200 + b"\r\n", b"431", b"headers"),
        (b"POST /v1/traces HTTP/1.1\r\n" + LONG * 20 + b"\r\n", b"431", b"its headers are too long"),
        (b"POST /v1/traces HTTP/1.1\r\n" + LONG * 20, b"431", b"at most 64 KiB"),
        (b"x" * 70_000, b"431", b"its first line is too long: a head has at most 64 KiB"),
    ],
)
def test_what_is_no_http_is_told_so(one: Watched, said: bytes, status: bytes, says: bytes) -> None:
    answer = spoken(one, said)
    assert answer.startswith(b"HTTP/1.1 " + status) and says in answer
    assert one.post(bytes_of(1))[0] == 200


def request(body: bytes, *headers: str) -> bytes:
    lines = ["POST /v1/traces HTTP/1.1", "Host: x", f"Content-Type: {PROTOBUF}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


def chunks(data: bytes, size: int) -> bytes:
    parts = [data[at : at + size] for at in range(0, len(data), size)]
    return b"".join(b"%x;a=b\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\nTrailer: x\r\n\r\n"


def test_chunks_and_members_of_gzip_are_read(one: Watched) -> None:
    """As the exporter of Node.js sends them."""
    before = one.watch.tally.spans
    # Messages one behind the other are their union.
    packed = gzip.compress(bytes_of(40)) + gzip.compress(bytes_of(30, first=100))
    said = request(chunks(packed, 11), "Transfer-Encoding: chunked", "Content-Encoding: gzip", "Connection: close")
    assert spoken(one, said, ends=False).startswith(b"HTTP/1.1 200 OK")
    assert one.watch.tally.spans == before + 70


@pytest.mark.parametrize(
    "framed",
    [b"zz\r\n", b"\r\n", b"5\r\nabcdefgh\r\n0\r\n\r\n", b"fffffffff\r\n", b"5\r\nab", b"0\r\n" + b"a: b\r\n" * 20],
)
def test_chunks_that_are_none_are_refused(one: Watched, framed: bytes) -> None:
    answer = spoken(one, request(framed, "Transfer-Encoding: chunked"))
    assert answer.startswith(b"HTTP/1.1 400") and b"Connection: close" in answer


def test_what_is_nothing_when_unpacked_is_too_large_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scotfree.study.watch.body.BODY_BYTES_MAX", 1 << 16)
    packed = gzip.compress(b"") * 5000
    headers = ("Transfer-Encoding: chunked", "Content-Encoding: gzip", "Connection: close")
    with watching(tmp_path) as watched:
        answer = spoken(watched, request(chunks(packed, 4096), *headers), ends=False)
        assert answer.startswith(b"HTTP/1.1 413")
        # Nor is what frames it without an end.
        answer = spoken(watched, request(chunks(packed[: len(packed) // 7], 1), *headers), ends=False)
        assert answer.startswith(b"HTTP/1.1 413")


def json_of(*spans: str) -> bytes:
    return ('{"resourceSpans":[{"scopeSpans":[{"spans":[' + ",".join(spans) + "]}]}]}").encode()


SPAN = json.dumps(
    {
        "traceId": "1".zfill(32),
        "spanId": "1".zfill(16),
        "name": "NAME",
        "kind": 2,
        "startTimeUnixNano": str(NOW_NS),
        "endTimeUnixNano": str(NOW_NS + 1000),
    }
)


def test_values_that_are_left_out_are_told_to_their_sender(one: Watched) -> None:
    status, _, answer = one.post(json_of(SPAN, '"x"', "5"), JSON)
    partial = json.loads(answer)["partialSuccess"]
    assert status == 200 and partial["rejectedSpans"] == "0"
    assert partial["errorMessage"].startswith("2 values: a value is not of its field's kind")


@pytest.mark.parametrize("half", ["\\ud800", "\\uDC00", "\\ud800x", r"\\ud800\ud800", "\\ud83d\\ude00\\ud83d"])
def test_half_a_letter_costs_no_batch(tmp_path: Path, half: str) -> None:
    """In a file as well."""
    body = json_of(SPAN.replace("NAME", half), SPAN.replace('1"', '2"'))
    (tmp_path / "spans.json").write_bytes(body)
    with watching(tmp_path / "live") as watched:
        assert watched.post(body, JSON)[::2] == (200, b"{}")
        watched.watch.round()
    live, read = Store.open(tmp_path / "live" / "store"), ingest([tmp_path / "spans.json"], tmp_path / "read")
    name = json.loads(f'"{half}"').encode(errors="replace").decode().replace("?", "\ufffd")
    for store in (live, read):
        assert store.manifest.dropped == 0
        methods = pq.read_table(store.folder / "methods.parquet")["method"].to_pylist()
        assert sorted(methods) == sorted(["NAME", name])


def test_half_a_body_is_nothing(tmp_path: Path) -> None:
    body = bytes_of(50)
    with watching(tmp_path) as watched:
        answer = spoken(watched, request(body[: len(body) // 2], f"Content-Length: {len(body)}"))
        assert answer.startswith(b"HTTP/1.1 400") and b"the body ends early" in answer
        assert watched.post(body)[0] == 200
        watched.watch.round()
        page = watched.get("/")[1]
        assert "50 spans received in 1 request" in page and "1 request refused (1 no OTLP)" in page


@pytest.mark.parametrize(
    "said", [b"POST /v1/tr", b"POST / HTTP/1.1\r\nA: b\r\n", request(b"x", "Content-Length: 9")]
)
def test_who_is_slow_gives_his_thread_back(
    tmp_path: Path, said: bytes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("scotfree.study.watch.receiver.IDLE_S", 0.05)
    monkeypatch.setattr("scotfree.study.watch.receiver._SKIPPED_S", 0.05)
    with watching(tmp_path, connections=1, head_s=0.05, body_s=0.05) as watched:
        answer = spoken(watched, said, ends=False)
        # Whoever did not even say a line is not answered.
        assert answer.startswith(b"HTTP/1.1 408") == (b"\r\n" in said)
        assert status_when_free(watched) == 200


def test_who_drips_is_slow_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte comes in time, and all of them never do."""
    monkeypatch.setattr("scotfree.study.watch.receiver._SKIPPED_S", 0.05)
    with watching(tmp_path, body_s=0.05) as watched:
        with create_connection((HOST, watched.watch.receiver.server_port)) as connection:
            connection.sendall(request(b"", f"Content-Length: {BODY_BYTES_MAX}"))
            with pytest.raises(ConnectionError):
                for _ in range(BODY_BYTES_MAX - 1):
                    connection.sendall(b"x")
        assert dict(watched.watch.tally.refused) == {SLOW.name: 1}


def status_when_free(watched: Watched) -> int:
    """Of a request, once the only thread is there again."""
    while (status := watched.post(bytes_of(1))[0]) == 429:
        pass
    return status


def test_more_connections_than_threads_are_told_to_come_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with watching(tmp_path, connections=1) as watched:
        with create_connection((HOST, watched.watch.receiver.server_port)):
            for _ in range(3):
                status, headers, _ = watched.post(bytes_of(1))
                assert status == 429 and headers["Retry-After"] == "1"
        assert status_when_free(watched) == 200
        # However many there are, it is said once.
        assert capsys.readouterr().err.count("more at once than fits") == 1
        assert "more at once than fits)" in watched.get("/")[1]


def test_more_bytes_than_fit_are_told_to_come_again(tmp_path: Path) -> None:
    small, large = bytes_of(1), bytes_of(100)
    with watching(tmp_path, held_bytes=len(large) - 1) as watched:
        status, headers, answer = watched.post(large)
        assert status == 429 and headers["Retry-After"] == "1"
        assert Status.FromString(answer).code == 8
        # What it held of them is free again.
        assert [watched.post(small)[0] for _ in range(100)] == [200] * 100


class _Full(io.FileIO):
    """A file of a disk with so much room."""

    room = 0

    def write(self, data: Any, /) -> int:
        """As the system does it: what fits is written."""
        if self.room == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = super().write(data[: self.room])
        type(self).room -= written
        return written


def test_a_full_disk_is_told_and_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("scotfree.study.watch.segments.io.FileIO", _Full)
    _Full.room = len(bytes_of(10)) + 4 + 7
    with watching(tmp_path) as watched:
        assert watched.post(bytes_of(10))[0] == 200
        for _ in range(3):
            status, headers, answer = watched.post(bytes_of(10, first=20))
            assert status == 503 and headers["Retry-After"] == "1"
            assert "No space left on device" in Status.FromString(answer).message
        assert capsys.readouterr().err.count("the disk did not take it") == 1
        watched.watch.round()
        assert ", 10 calls;" in watched.get("/")[1]
        _Full.room = 1 << 20
        assert watched.post(bytes_of(10, first=20))[0] == 200
        watched.watch.round()
        assert "the disk takes it again" in capsys.readouterr().err
        page = watched.get("/")[1]
        assert ", 20 calls; 20 spans received" in page and "3 the disk did not take it" in page


def test_the_sdk_sends_again_what_was_refused_for_now(tmp_path: Path) -> None:
    """Its exporter obeys Retry-After: nothing is lost and nothing is there twice."""
    with watching(tmp_path) as watched:
        refuse, whole = [True], watched.watch._segments.append

        def append(message: bytes, spans: int) -> None:
            if refuse:
                refuse.pop()
                raise Refused(DISK, "no room")
            whole(message, spans)

        watched.watch._segments.append = append  # type: ignore[method-assign]
        sdk_sends(watched.watch.url(), 100)
        watched.watch.round()
        assert not refuse and ", 100 calls; 100 spans received" in watched.get("/")[1]
