"""The server: GET only, on the loopback address only, for requests that name it as their host.

That a request names this host keeps pages of other sites, whose names were pointed at this machine, from reading.
"""

from __future__ import annotations

import io
import ipaddress
import re
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import SplitResult, parse_qs, quote, urlsplit

import duckdb
import jinja2

from scotfree.connections import RETRY_AFTER_S, BoundedServer, LongHeadError, Timed, answer
from scotfree.study import schema
from scotfree.study.figures.overview import UNKNOWN_CLIENT
from scotfree.study.figures.words import UNNAMED, called, spoken
from scotfree.study.ingest.clean import NAME_CHARACTERS_MAX
from scotfree.study.report import on_path, page
from scotfree.study.report.serve.queries import Listing, Queries, Rows
from scotfree.study.report.serve.tables import FORMS, SORTED, Table, listing
from scotfree.study.report.serve.waterfall import Bar, waterfall
from scotfree.study.trouble import StudyError

HOST = "127.0.0.1"
# Each is a thread, until it has its page.
CONNECTIONS_MAX: Final = 64
# For the first line and headers of a request; and for a page that is sent.
HEAD_S: Final = 10.0
# Pages that are made at once, each of which may hold DuckDB's memory and all processors; how long others wait.
MADE_AT_ONCE: Final = 4
_TURN_S: Final = 2.0
# A bar's least width, in percent; what is deeper is not moved further to the right.
_BAR_MIN, _DEPTH_MAX = 0.3, 20
# Digits of a trace's id, and of a call's.
TRACE_DIGITS, SPAN_DIGITS = 32, 16
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'self'"
_NAME = re.compile(rf".{{0,{NAME_CHARACTERS_MAX}}}", re.DOTALL)
_FORMS = {
    # As it is pasted: some tools write 64 bits, and leave out zeros before.
    "trace": re.compile(rf"\s*[0-9a-fA-F]{{1,{TRACE_DIGITS}}}\s*"),
    "span": re.compile(rf"[0-9a-fA-F]{{1,{SPAN_DIGITS}}}"),
    **FORMS,
    # A service may have no name.
    "name": _NAME,
    "service": _NAME,
    "method": _NAME,
}


class Refused(Exception):
    """A request that is answered by an error."""

    def __init__(self, status: HTTPStatus, why: str) -> None:
        super().__init__(why)
        self.status = status


def parameters(query: str, *names: str, optional: Collection[str] = ()) -> list[str]:
    """These, each once and of its form, and behind them the optional ones, empty where they are not there.

    `Refused` otherwise.
    """
    try:
        given = parse_qs(query, keep_blank_values=True, strict_parsing=bool(query), max_num_fields=8)
    except ValueError as error:
        raise Refused(HTTPStatus.BAD_REQUEST, f"the query cannot be read: {error}") from None
    found = []
    for name in (*names, *optional):
        values = given.get(name, [])
        if name in optional and not values:
            found.append("")
            continue
        if len(values) != 1 or not _FORMS[name].fullmatch(values[0]):
            raise Refused(HTTPStatus.BAD_REQUEST, f"`{name}` is missing, repeated or not of its form")
        found.append(values[0])
    return found


@dataclass(frozen=True)
class Live:
    """What is said of calls that go on coming."""

    # Asked for at each page.
    text: Callable[[], str]
    # After so many seconds a page asks for itself again.
    every_s: int


class Pages:
    """The pages by their paths: from a query to HTML."""

    def __init__(
        self, queries: Queries, live: Live | None = None, ended: Callable[[], None] | None = None
    ) -> None:
        """`ended` is called when others took their place and the last of them is made."""
        self._queries = queries
        self._live = live
        self._ended = ended
        self._lock = threading.Lock()
        # Pages that are being made, and one more until others take their place.
        self._users = 1
        self._template = _environment().get_template("serve.html.j2")
        self.by_path: dict[str, Callable[[str], str]] = {
            "/": self._fleet,
            "/service": self._service,
            "/method": self._method,
            "/trace": self._trace,
        }

    def hold(self) -> bool:
        """Keeps them open until `release`; False if they no longer are."""
        with self._lock:
            self._users += 1 if self._users else 0
            return self._users > 0

    def release(self) -> None:
        """A page is made; or others took their place."""
        with self._lock:
            self._users -= 1
            is_last = self._users == 0
        if is_last and self._ended is not None:
            self._ended()

    def _render(self, **values: Any) -> str:
        empty: dict[str, Any] = {
            "tables": [],
            "method": None,
            "groups": [],
            "path": None,
            "call": None,
            "calls": [],
            "others": 0,
            "up": [],
            "live": self._live,
            # One call stays as it is.
            "every_s": self._live.every_s if self._live and not values.get("call") else None,
        }
        return self._template.render(style=page.asset("page.css"), policy=_POLICY, **{**empty, **values})

    def _fleet(self, query: str) -> str:
        wanted = listing(*parameters(query, optional=SORTED))
        rows = self._queries.services(wanted)
        table = Table("All services", rows, wanted, "/", lambda row: ("/service", {"name": row["name"]}))
        if not rows and wanted.page > 1:
            raise Refused(HTTPStatus.NOT_FOUND, "no such page of the list")
        return self._render(title="All services", tables=[table])

    def _service(self, query: str) -> str:
        name, *sorted_by = parameters(query, "name", optional=SORTED)
        wanted = listing(*sorted_by)
        why = "no such service" if wanted.page == 1 else "no such service, or page of the list"
        rows = _found(self._queries.methods(name, wanted), why)
        table = Table("Its methods", rows, wanted, "/service", _to_method(name), {"name": name})
        return self._render(title=name or UNNAMED, tables=[table], up=[("All services", "/")])

    def _method(self, query: str) -> str:
        service, name, *sorted_by = parameters(query, "service", "method", optional=SORTED)
        wanted = listing(*sorted_by)
        # By its names: another store of the same services numbers their methods otherwise.
        method_id = self._queries.method_id(service, name)
        method = None if method_id is None else self._queries.method(method_id)
        if method_id is None or method is None:
            raise Refused(HTTPStatus.NOT_FOUND, "no such method")
        groups = []
        if slowest := self._queries.slowest(method_id):
            groups.append(("The slowest calls", slowest))
        if method["p95_ns"] is not None:
            groups.append(("Calls around the P95", self._queries.around(method_id, method["p95_ns"])))
        up = [("All services", "/"), _service_link(method)]
        bars = [(name, [_exemplar(row, rows) for row in rows]) for name, rows in groups]
        return self._render(
            title=method["method"] or UNNAMED,
            method=method,
            tables=self._edges(method_id, {"service": service, "method": name}, wanted),
            path=next(iter(on_path.entries(self._queries.critical_path(method_id))), None),
            stages=_stages(method),
            groups=bars,
            up=up,
        )

    def _edges(self, method_id: int, own: dict[str, str], wanted: Listing) -> list[Table]:
        """Who calls it, and whom it calls; `own` is how its page is asked for."""
        clients, callees = self._queries.clients(method_id, wanted), self._queries.callees(method_id, wanted)
        if wanted.page > 1 and not clients and not callees:
            raise Refused(HTTPStatus.NOT_FOUND, "no such page of the lists")
        made = [
            Table("Its clients", clients, wanted, "/method", _to_client, own, unnamed=UNKNOWN_CLIENT),
            Table("What it calls", callees, wanted, "/method", _to_callee, own),
        ]
        return [table for table in made if table.rows]

    def _trace(self, query: str) -> str:
        trace, span = parameters(query, "trace", optional=("span",))
        trace = trace.strip().lower().zfill(TRACE_DIGITS)
        calls = _found(self._queries.trace(trace), f"no trace {trace}")
        call = self._queries.call(trace, _signed(span)) if span else calls[0]
        if call is None:
            raise Refused(HTTPStatus.NOT_FOUND, "no such call")
        name = called(call["service"], call["method"])
        up = [("All services", "/"), _service_link(call)]
        up.append((call["method"] or UNNAMED, _method_link(call["service"], call["method"])))
        return self._render(
            title=f"A call of {name}",
            call=call,
            stages=_stages(call),
            calls=_bars(waterfall(calls)),
            others=self._queries.calls_in(trace) - len(calls),
            id=hexadecimal(call["span_id"]),
            here=_link(call),
            up=up,
        )


def hexadecimal(span_id: int) -> str:
    """A call's id as every other tool writes it."""
    return f"{span_id & (1 << 64) - 1:0{SPAN_DIGITS}x}"


def _signed(span: str) -> int:
    """The store has 64 bits with a sign."""
    value = int(span, 16)
    return value - (1 << 64) if value >> 63 else value


def _link(row: dict[str, Any]) -> str:
    return f"/trace?trace={row['trace']}&span={hexadecimal(row['span_id'])}"


def _bars(bars: list[Bar]) -> list[dict[str, Any]]:
    """The rows of a waterfall; places in percent of the whole trace."""
    first = min(bar.start_ns for bar in bars)
    whole = max(bar.end_ns for bar in bars) - first or 1

    def part(start: int, end: int) -> tuple[float, float]:
        # What is too short to be seen is drawn as a line.
        width = max(100 * (end - start) / whole, _BAR_MIN)
        return min(100 * (start - first) / whole, 100 - width), width

    return [
        {
            "link": _link(bar.row),
            "span": hexadecimal(bar.row["span_id"]),
            "name": called(bar.row["service"], bar.row["method"]),
            "status": bar.row["status"],
            "depth": min(bar.depth, _DEPTH_MAX),
            "after": bar.start_ns - first,
            "ns": bar.end_ns - bar.start_ns if bar.end_ns > bar.start_ns else None,
            "critical_ns": bar.critical_ns or None,
            "bar": part(bar.start_ns, bar.end_ns),
            "critical": [part(*segment) for segment in bar.critical],
        }
        for bar in bars
    ]


def _method_link(service: str, method: str) -> str:
    return f"/method?service={quote(service, safe='')}&method={quote(method, safe='')}"


def _to_method(service: str) -> Callable[[dict[str, Any]], tuple[str, dict[str, str]]]:
    """The page of a service's method."""
    return lambda row: ("/method", {"service": service, "method": row["name"]})


def _to_callee(row: dict[str, Any]) -> tuple[str, dict[str, str]]:
    return "/method", {"service": row["service"], "method": row["name"]}


def _to_client(row: dict[str, Any]) -> tuple[str, dict[str, str]] | None:
    return ("/service", {"name": row["name"]}) if row["is_service"] else None


def _service_link(row: dict[str, Any]) -> tuple[str, str]:
    return row["service"] or UNNAMED, f"/service?name={quote(row['service'], safe='')}"


def _found(rows: Rows, why: str) -> Rows:
    if not rows:
        raise Refused(HTTPStatus.NOT_FOUND, why)
    return rows


def _stages(row: dict[str, Any]) -> list[dict[str, Any]]:
    """The nine stages one behind the other: name, colour, start and length in percent of them all."""
    # It stands on Altair, which the first page does not wait for.
    from scotfree.study.report.charts import theme  # noqa: PLC0415

    known = [(stage, row[f"{stage}_ns"]) for stage in schema.STAGES]
    whole = sum(value or 0 for _, value in known) or 1
    found, reached = [], 0.0
    for stage, value in known:
        share = 100 * (value or 0) / whole
        colour = theme.STAGE_COLOURS[stage]
        of_all = None if value is None else share / 100
        found.append(
            {"name": spoken(stage), "ns": value, "colour": colour, "from": reached, "share": share}
            | {"of_all": of_all}
        )
        reached += share
    return found


def _exemplar(row: dict[str, Any], rows: Rows) -> dict[str, Any]:
    """A call with its stages, its length in percent of the longest of its list."""
    longest = max(each["known_ns"] for each in rows) or 1
    return {
        "link": _link(row),
        "trace": row["trace"],
        "ns": row["known_ns"],
        "is_client": row["total_ns"] is not None,
        "width": 100 * row["known_ns"] / longest,
        "stages": _stages(row),
    }


def _environment() -> jinja2.Environment:
    environment = page.environment()
    environment.globals["called"] = called
    return environment


def _address(path: str) -> SplitResult:
    try:
        return urlsplit(path)
    except ValueError as error:
        raise Refused(HTTPStatus.BAD_REQUEST, f"the address cannot be read: {error}") from None


class _Server(BoundedServer):
    """Names by which it is asked for are known when it has its port."""

    def __init__(self, address: tuple[str, int], latest: Callable[[], Pages], limits: Limits) -> None:
        super().__init__(address, _Handler, limits.connections)
        self.limits = limits
        self.latest = latest
        self.turns = threading.BoundedSemaphore(limits.made_at_once)
        self._names = {f"{name}:{self.server_port}" for name in (HOST, "localhost", "[::1]", address[0])}
        # Where others reach it, they do by a number: a name may be another site's, which was pointed here.
        self._is_open = not _is_loopback(address[0])

    def is_called(self, host: str) -> bool:
        """Whether a request means this server."""
        return host in self._names or (self._is_open and _is_number(host))

    def busy(self) -> bytes:
        """More connections than there are threads."""
        why = f"{self.limits.connections} connections are open"
        return answer(HTTPStatus.SERVICE_UNAVAILABLE, _HEADERS["Content-Type"], _refusal(why).encode())


@dataclass(frozen=True)
class Limits:
    """What readers may hold."""

    connections: int = CONNECTIONS_MAX
    head_s: float = HEAD_S
    made_at_once: int = MADE_AT_ONCE
    turn_s: float = _TURN_S


def serve(queries: Queries, port: int) -> ThreadingHTTPServer:
    """A server that is bound (port 0: any that is free) and not yet running."""
    pages = Pages(queries)
    return serve_latest(lambda: pages, (HOST, port))


def serve_latest(
    latest: Callable[[], Pages], address: tuple[str, int], limits: Limits | None = None
) -> ThreadingHTTPServer:
    """The same for pages that others take the place of, at any address."""
    return _Server(address, latest, limits or Limits())


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version = "scotfree"
    # To write a page.
    timeout = 10

    def setup(self) -> None:
        super().setup()
        self._timed = Timed(self.connection)
        self.rfile = io.BufferedReader(self._timed)

    def handle_one_request(self) -> None:
        self._timed.within(self.server.limits.head_s)
        self._timed.head()
        super().handle_one_request()

    def parse_request(self) -> bool:
        try:
            return super().parse_request()
        except LongHeadError:
            self.send_error(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
            self._timed.part()
            return False

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def _answer(self) -> None:
        self.connection.settimeout(self.timeout)
        try:
            self._send(HTTPStatus.OK, self._page())
        except Refused as refused:
            self._refuse(refused.status, str(refused))
        except StudyError as error:
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
        except duckdb.Error as error:
            self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR, f"the store cannot be read: {error}")

    def _refuse(self, status: HTTPStatus, why: str) -> None:
        self._send(status, _refusal(why))

    def _page(self) -> str:
        if not self.server.is_called(self.headers.get("Host", "")):
            raise Refused(HTTPStatus.MISDIRECTED_REQUEST, "this server is known by its loopback address only")
        asked = _address(self.path)
        if not self.server.turns.acquire(timeout=self.server.limits.turn_s):
            made = self.server.limits.made_at_once
            raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, f"{made} pages are being made; ask again later")
        try:
            return self._made(asked)
        finally:
            self.server.turns.release()

    def _made(self, asked: SplitResult) -> str:
        pages = _held(self.server.latest)
        try:
            return _of(pages, asked)
        except StudyError:
            # Its store may be gone because others took its place.
            if self.server.latest() is pages:
                raise
        finally:
            pages.release()
        return self._made(asked)

    def _send(self, status: HTTPStatus, html: str) -> None:
        body = html.encode()
        self.send_response(status)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        if status == HTTPStatus.SERVICE_UNAVAILABLE:
            self.send_header("Retry-After", str(RETRY_AFTER_S))
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing: names in addresses are the user's own."""


def _held(latest: Callable[[], Pages]) -> Pages:
    """The newest pages, which stay open."""
    # Others may take their place in between.
    while not (pages := latest()).hold():
        pass
    return pages


def _of(pages: Pages, asked: SplitResult) -> str:
    if asked.path not in pages.by_path:
        raise Refused(HTTPStatus.NOT_FOUND, "no such page")
    return pages.by_path[asked.path](asked.query)


def _refusal(why: str) -> str:
    return f"<!doctype html><title>refused</title><p>{_escaped(why)}</p>"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _is_number(host: str) -> bool:
    """Whether a request names its host by its address."""
    try:
        return ipaddress.ip_address(host.rpartition(":")[0].strip("[]")) is not None
    except ValueError:
        return False


_HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "Content-Security-Policy": _POLICY + "; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


def _escaped(value: str) -> str:
    return value.replace("&", "&amp;").replace("<", "&lt;")
