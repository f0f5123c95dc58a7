"""The forms that are read. The first that recognises an input reads it."""

from __future__ import annotations

from typing import Final

from scotfree.study.ingest.alibaba import Alibaba
from scotfree.study.ingest.csv_table import CsvTable
from scotfree.study.ingest.folded import Folded
from scotfree.study.ingest.jaeger import Jaeger
from scotfree.study.ingest.json_table import JsonTable
from scotfree.study.ingest.otlp_json import OtlpJson
from scotfree.study.ingest.otlp_profiles import OtlpProfiles
from scotfree.study.ingest.otlp_profiles_json import JsonDecoder
from scotfree.study.ingest.otlp_profiles_wire import WireDecoder
from scotfree.study.ingest.otlp_proto import OtlpProto
from scotfree.study.ingest.parquet import Parquet
from scotfree.study.ingest.perf_script import PerfScript
from scotfree.study.ingest.pprof import Pprof
from scotfree.study.ingest.prometheus import Prometheus
from scotfree.study.ingest.reader import Reader
from scotfree.study.ingest.skywalking import SkyWalking
from scotfree.study.ingest.zipkin import Zipkin

READERS: Final[tuple[Reader, ...]] = (
    Parquet(),
    # Before the other signals of OTLP: they tell themselves by less of their beginning.
    OtlpProfiles(JsonDecoder()),
    OtlpProfiles(WireDecoder()),
    Pprof(),
    OtlpJson(),
    OtlpProto(),
    Jaeger(),
    Zipkin(),
    SkyWalking(),
    Alibaba(),
    Prometheus(),
    CsvTable(),
    JsonTable(),
    PerfScript(),
    Folded(),
)
