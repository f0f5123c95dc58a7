"""What a message has: its spans, counted by the decoder that reads files, so that both count the same."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from scotfree.study.figures.words import counted
from scotfree.study.ingest.otlp import TRACES, WRONG_KIND, span_decoder, transcoded
from scotfree.study.ingest.reader import BATCH_ROWS_MAX
from scotfree.study.watch.refusing import DAMAGED, Refused

# What the decoder says of bytes that are no message; all else it says is of spans.
_DAMAGES: Final = ("ends early", "the bytes are no OTLP message")
_REASONS_MAX: Final = 3


@dataclass(frozen=True)
class Message:
    """One as protobuf, whole."""

    data: bytes
    spans: int
    # Of the spans those that can be no record, and why; also of what else is left out.
    rejected: int
    reason: str


def of_protobuf(data: bytes) -> Message:
    """`Refused` if it is none."""
    decoder = span_decoder()
    decoder.start(data)
    while not decoder.decode(data, BATCH_ROWS_MAX):
        # The rows are the ingest's; here they would only be held.
        decoder.take()
    dropped = [(reason, count) for reason, _, count, is_kept in decoder.troubles() if not is_kept]
    for reason, _ in dropped:
        if reason in _DAMAGES:
            raise Refused(DAMAGED, f"no ExportTraceServiceRequest: {reason}")
    reasons = "; ".join(f"{counted(count, 'span')}: {reason}" for reason, count in dropped[:_REASONS_MAX])
    return Message(data, int(decoder.records), sum(count for _, count in dropped), reasons)


def of_json(text: bytes) -> Message:
    """The same, as protobuf. `Refused` if it is none."""
    data, wrong, broken = transcoded(text, TRACES)
    if broken:
        raise Refused(DAMAGED, f"no ExportTraceServiceRequest in JSON: {broken[0]}")
    if wrong and not data:
        raise Refused(DAMAGED, "no ExportTraceServiceRequest in JSON: its fields are of other kinds")
    message = of_protobuf(data)
    if not wrong:
        return message
    # Files have them in their ledger.
    left_out = f"{counted(wrong, 'value')}: {WRONG_KIND}"
    return replace(message, reason="; ".join(filter(None, [message.reason, left_out])))
