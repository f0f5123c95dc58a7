"""Tables that are sorted and turned over by links: the server does it, so that a page needs no script."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final
from urllib.parse import quote, urlencode

from scotfree.study.figures.words import UNNAMED
from scotfree.study.report.serve.queries import MOST_CALLED, ORDERS, ROWS_MAX, SORTS, Listing, Rows

# What an address may say of a table's order.
SORTED: Final = ("sort", "order", "page")
FORMS: Final = {
    "sort": re.compile("|".join(SORTS)),
    "order": re.compile("|".join(ORDERS)),
    "page": re.compile(r"[1-9]\d{0,5}"),
}
_COLUMNS: Final = {
    "name": "Name",
    "calls": "Calls",
    "errors": "Errors",
    "p50": "P50",
    "p95": "P95",
    "p99": "P99",
    "outside": "P50 outside the handler",
    "tax": "Tax of the time",
}
Target = tuple[str, Mapping[str, str]]


def listing(sort: str, order: str, page: str) -> Listing:
    """As an address says it: names from the first, numbers from the greatest if no order is given."""
    sort = sort or MOST_CALLED.sort
    return Listing(sort, order or _first_order(sort), int(page or 1))


def _first_order(sort: str) -> str:
    return "asc" if sort == "name" else "desc"


def address(path: str, values: Mapping[str, str]) -> str:
    """A link to a page."""
    return f"{path}?{urlencode(values, quote_via=quote, safe='')}" if values else path


@dataclass(frozen=True)
class Head:
    """A column's head: its title, where a click on it leads, and how the table is sorted by it now."""

    title: str
    link: str
    # As `aria-sort` has it; empty if the table is sorted by another.
    sorted: str
    is_number: bool


@dataclass(frozen=True)
class Table:
    """Rows with the links of one."""

    title: str
    found: Rows
    listing: Listing
    path: str
    to: Callable[[dict[str, Any]], Target | None]
    # What its page's address says beside the order.
    own: Mapping[str, str] = field(default_factory=dict)
    unnamed: str = UNNAMED

    @property
    def rows(self) -> Rows:
        """What is shown."""
        return [self._row(row) for row in self.found[:ROWS_MAX]]

    @property
    def heads(self) -> Sequence[Head]:
        """Of the columns, in their order."""
        return [self._head(name) for name in _COLUMNS]

    @property
    def before(self) -> str:
        """The link to the rows before these; empty if there are none."""
        return self._link(replace(self.listing, page=self.listing.page - 1)) if self.listing.page > 1 else ""

    @property
    def behind(self) -> str:
        """The link to the rows behind these."""
        more = len(self.found) > ROWS_MAX
        return self._link(replace(self.listing, page=self.listing.page + 1)) if more else ""

    def _row(self, row: dict[str, Any]) -> dict[str, Any]:
        target = self.to(row)
        return {
            "service": "",
            **row,
            "name": row["name"] or self.unnamed,
            "link": address(*target) if target else "",
        }

    def _head(self, name: str) -> Head:
        is_by = name == self.listing.sort
        order = _first_order(name)
        if is_by and self.listing.order == order:
            order = next(other for other in ORDERS if other != order)
        now = {"asc": "ascending", "desc": "descending"}[self.listing.order] if is_by else ""
        return Head(_COLUMNS[name], self._link(Listing(name, order)), now, name != "name")

    def _link(self, to: Listing) -> str:
        order = {"sort": to.sort, "order": to.order}
        return address(self.path, {**self.own, **order, **({"page": str(to.page)} if to.page > 1 else {})})
