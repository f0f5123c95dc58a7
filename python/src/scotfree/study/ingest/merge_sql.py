"""The joins of the merge, as SQL over the records of one partition. Rules: docs/study-merge.md."""

from __future__ import annotations

from typing import Final

from scotfree.study import schema
from scotfree.study.schema import Kind, Provenance

# Client's, server's, or neither's record.
CLIENT, SERVER, INTERNAL = 0, 1, 2

LOAD: Final = f"""
CREATE OR REPLACE TABLE side AS
SELECT *, CASE WHEN kind IN ({Kind.CLIENT}, {Kind.PRODUCER}) THEN {CLIENT}
               WHEN kind IN ({Kind.SERVER}, {Kind.CONSUMER}) THEN {SERVER} ELSE {INTERNAL} END::TINYINT AS role
FROM incoming"""

# Rule 2: the role of records without kind, from the services of their parent and children.
KINDLESS: Final = f"""
CREATE OR REPLACE TABLE kindless AS
WITH known AS (SELECT DISTINCT hi, lo, span_id, parent_id, service FROM side),
above AS (
  SELECT k.row, bool_or(p.service <> k.service) AS crosses
  FROM side k JOIN known p ON p.hi = k.hi AND p.lo = k.lo AND p.span_id = k.parent_id
  WHERE k.kind = 0 GROUP BY k.row),
below AS (
  SELECT k.row, count(*) AS children, count(*) FILTER (c.service <> k.service) AS away
  FROM side k JOIN known c ON c.hi = k.hi AND c.lo = k.lo AND c.parent_id = k.span_id
  WHERE k.kind = 0 GROUP BY k.row)
SELECT side.row, input, record,
  CASE WHEN is_shared OR crosses THEN {Kind.SERVER}
       WHEN (children = 1 AND away = 1) OR peer_service IS NOT NULL THEN {Kind.CLIENT}
       WHEN parent_id IS NULL AND children > 0 THEN {Kind.SERVER}
       ELSE {Kind.INTERNAL} END::TINYINT AS kind
FROM side LEFT JOIN above USING (row) LEFT JOIN below USING (row) WHERE kind = 0"""

TAKE_KINDS: Final = f"""
UPDATE side SET kind = kindless.kind,
  role = CASE kindless.kind WHEN {Kind.CLIENT} THEN {CLIENT} WHEN {Kind.SERVER} THEN {SERVER} ELSE {INTERNAL} END
FROM kindless WHERE kindless.row = side.row"""

# One node per id: the rows of its client's, server's and other record, and whose parent it has.
NODES: Final = f"""
CREATE OR REPLACE TABLE node AS
SELECT (row_number() OVER ())::INTEGER - 1 AS n, * FROM (
  SELECT hi, lo, span_id,
    min(row) FILTER (role = {CLIENT}) AS client, min(row) FILTER (role = {SERVER}) AS server,
    min(row) FILTER (role = {INTERNAL}) AS internal,
    count(*) > greatest(1, (client IS NOT NULL)::INTEGER + (server IS NOT NULL)::INTEGER) AS is_doubled,
    arg_min(coalesce(parent_id, 0), role) AS parent, bool_or(is_shared AND role = {SERVER}) AS is_shared
  FROM side GROUP BY hi, lo, span_id)"""

# Rule 3: of several records of one id and role one is kept, by content. Where they stand decides last, and then
# nothing hangs on it.
SURPLUS: Final = """
CREATE OR REPLACE TABLE surplus AS
SELECT row, input, record, CASE WHEN nth > 1 AND content = kept THEN 'twice' ELSE 'id' END AS reason
FROM (
  SELECT *, row_number() OVER ordered AS nth, first_value(content) OVER ordered AS kept,
    min(role) OVER (PARTITION BY hi, lo, span_id) AS role_first
  FROM (SELECT side.*, {content} AS content FROM side
        SEMI JOIN (SELECT hi, lo, span_id FROM node WHERE is_doubled) USING (hi, lo, span_id))
  WINDOW ordered AS (PARTITION BY hi, lo, span_id, role
                     ORDER BY start_ns, duration_ns DESC, content, input, record))
WHERE nth > 1 OR (role = 2 AND role_first < 2)"""

DROP_SURPLUS: Final = "DELETE FROM side WHERE row IN (SELECT row FROM surplus)"

PARENTS: Final = """
SELECT node.n, node.span_id, coalesce(node.client, -1)::INTEGER AS client,
  coalesce(node.server, -1)::INTEGER AS server,
  coalesce(node.internal, -1)::INTEGER AS internal, coalesce(p.n, -1)::INTEGER AS parent,
  node.parent <> 0 AS has_parent, node.is_shared
FROM node LEFT JOIN node p ON p.hi = node.hi AND p.lo = node.lo AND p.span_id = node.parent AND node.parent <> 0"""

# Rule 5: of several servers under one client that whose answer it was: of the client's status, the first to end.
WINNERS: Final = """
SELECT attempt FROM (
  SELECT attempt, row_number() OVER (PARTITION BY a.client_row
    ORDER BY s.status <> c.status, s.start_ns + s.duration_ns, s.start_ns, s.span_id) AS nth
  FROM attempts a JOIN side s ON s.row = a.server_row JOIN side c ON c.row = a.client_row)
WHERE nth = 1"""


def content(columns: list[str]) -> str:
    """One number for what a record says, wherever it stands."""
    said = [name for name in columns if name not in ("input", "record", "row", "role")]
    return f"hash({', '.join(said)})"


_TOLERANCE = "greatest(1000, total_ns // 1000)"


def _given(name: str) -> str:
    return f"coalesce(c.{name}, s.{name}) AS given_{name}"


def _stage(index: int, name: str) -> str:
    if index == schema.APP:
        given = f"WHEN is_given AND given_{name} IS NOT NULL THEN given_{name} ELSE server_ns"
    else:
        given = f"WHEN is_given THEN given_{name}"
    return f"CASE WHEN is_whole THEN coalesce(given_{name}, 0) {given} END AS {name}"


def _bits(index: int, name: str) -> str:
    if index == schema.APP:
        otherwise = f"CASE WHEN server_app_ns IS NOT NULL THEN {int(Provenance.DERIVED)} ELSE 0 END"
    else:
        lumped = "total_ns IS NOT NULL AND server_app_ns IS NOT NULL"
        otherwise = f"CASE WHEN {lumped} THEN {int(Provenance.LUMPED)} ELSE 0 END"
    measured = f"is_whole OR (is_given AND given_{name} IS NOT NULL)"
    return f"(CASE WHEN {measured} THEN {int(Provenance.MEASURED)} ELSE {otherwise} END << {2 * index})"


def _sum(names: list[str], prefix: str) -> str:
    return " + ".join(f"coalesce({prefix}{name}, 0)" for name in names)


def _count(names: list[str], prefix: str) -> str:
    return " + ".join(f"({prefix}{name} IS NOT NULL)::INTEGER" for name in names)


def _prefer(first: str, second: str, names: list[str]) -> str:
    return ", ".join(f"coalesce({first}.{name}, {second}.{name}) AS {name}" for name in names)


def calls(start_ns_min: int, start_ns_max: int, first: int, behind: int) -> str:
    """Rules 4 and 6 to 9: one row per call, from a slice of `links` and its records."""
    stages = list(schema.STAGE_COLUMNS)
    message = f"({Kind.PRODUCER}, {Kind.CONSUMER})"
    sane = f"BETWEEN {start_ns_min} AND {start_ns_max}"
    return f"""
WITH slice AS MATERIALIZED (SELECT * FROM links WHERE rowid >= {first} AND rowid < {behind}),
sides AS (
  SELECT coalesce(c.hi, s.hi) AS hi, coalesce(c.lo, s.lo) AS lo, l.span_id, l.parent_id,
    coalesce(c.start_ns, s.start_ns) AS start_ns,
    coalesce(s.service, c.peer_service, -1 - c.service) AS service, coalesce(s.name, c.name) AS method,
    coalesce(c.service, u.service, s.peer_service) AS client_service,
    coalesce(s.cluster, c.peer_cluster) AS server_cluster,
    coalesce(c.cluster, u.cluster, s.peer_cluster) AS client_cluster,
    coalesce(s.machine, c.peer_machine) AS server_machine,
    coalesce(c.machine, u.machine, s.peer_machine) AS client_machine,
    coalesce(c.status, s.status) AS status, coalesce(c.answered_by, s.answered_by) AS answered_by,
    {", ".join(_given(name) for name in stages)},
    {_prefer("c", "s", ["req_bytes", "resp_bytes", "req_wire_bytes", "resp_wire_bytes"])},
    {_prefer("s", "c", ["cpu_cycles", "cpu_ns"])},
    {_prefer("c", "s", ["clock_bound_ns", "sample_weight", "key_hash"])},
    coalesce(c.kind, s.kind) IN {message} OR coalesce(s.kind, c.kind) IN {message} AS is_message,
    CASE WHEN l.is_further AND NOT is_message AND s.start_ns < w.start_ns + w.duration_ns
          AND w.start_ns < s.start_ns + s.duration_ns THEN true
         ELSE coalesce(c.is_hedge, s.is_hedge) END AS is_hedge,
    c.row IS NOT NULL AS has_client, s.row IS NOT NULL AS has_server,
    CASE WHEN NOT is_message THEN c.duration_ns END AS total_ns,
    s.duration_ns AS own_ns,
    s.start_ns - c.start_ns AS request_gap_ns,
    c.start_ns + c.duration_ns - s.start_ns - s.duration_ns AS response_gap_ns,
    c.start_ns {sane} AND s.start_ns {sane} AS has_clocks,
    CASE WHEN c.machine IS NULL OR s.machine IS NULL THEN -2 - c.service ELSE c.machine END AS client_place,
    CASE WHEN c.machine IS NULL OR s.machine IS NULL THEN -2 - s.service ELSE s.machine END AS server_place,
    coalesce(c.input, s.input) AS input, coalesce(c.record, s.record) AS record
  FROM slice l LEFT JOIN side c ON c.row = l.client LEFT JOIN side s ON s.row = l.server
    LEFT JOIN side u ON u.row = l.upstream LEFT JOIN side w ON w.row = l.winner),
given AS (
  SELECT *, {_count(stages, "given_")} AS stages_given, {_sum(stages, "given_")} AS stages_ns,
    CASE WHEN stages_given = 0 THEN false WHEN total_ns IS NULL THEN true
         WHEN stages_given = 9 THEN abs(stages_ns - total_ns) <= {_TOLERANCE}
         ELSE stages_ns <= total_ns + {_TOLERANCE} END AS is_given,
    coalesce(CASE WHEN stages_given = 9 THEN is_given ELSE stages_given > 1 AND stages_ns = total_ns END, false)
      AS is_whole,
    CASE WHEN total_ns IS NULL OR own_ns <= total_ns THEN own_ns END AS server_ns
  FROM sides),
staged AS (
  SELECT *, {", ".join(_stage(index, name) for index, name in enumerate(stages))} FROM given)
SELECT hi, lo, span_id, parent_id, start_ns, service, method, client_service, server_cluster, client_cluster,
  server_machine, client_machine, status, answered_by, {", ".join(stages)}, total_ns,
  ({" | ".join(_bits(index, name) for index, name in enumerate(stages))})::INTEGER AS provenance,
  req_bytes, resp_bytes, req_wire_bytes, resp_wire_bytes, cpu_cycles, cpu_ns, clock_bound_ns, sample_weight,
  key_hash, is_hedge, is_whole AS is_measured,
  CASE WHEN has_clocks AND total_ns >= own_ns THEN request_gap_ns END AS request_gap_ns,
  CASE WHEN has_clocks AND total_ns >= own_ns THEN response_gap_ns END AS response_gap_ns,
  client_place, server_place,
  input, record, has_client, has_server, is_message,
  stages_given > 0 AND NOT is_given AS has_wrong_stages,
  coalesce(own_ns > total_ns, false) AS is_outlived,
  coalesce(own_ns <= total_ns AND (request_gap_ns < 0 OR response_gap_ns < 0), false) AS is_outside
FROM staged"""


# What is counted of calls, and kept: a column of `call`, and the reason.
KEPT: Final = {
    "NOT has_client AND NOT is_message": "no client's record of the call: its completion time is not known",
    "server_app_ns IS NULL AND NOT has_server AND NOT is_message": "no server's record of the call: its "
    "application's time is not known",
    "is_message": "a message, without response: no completion time",
    "has_wrong_stages": "stages do not add up to the duration: not used",
    "is_outlived": "the server took longer than its client waited: the application's time is not used",
    "is_outside": "the server's record lies outside its client's: their clocks differ",
}
KINDS: Final = {
    int(Kind.INTERNAL): "kind is missing: taken as internal",
    int(Kind.SERVER): "kind is missing: taken as a server's",
    int(Kind.CLIENT): "kind is missing: taken as a client's",
}
SURPLUS_REASONS: Final = {
    "twice": "the record is there twice: one is kept",
    "id": "another record has its id: that which starts first is kept",
}
