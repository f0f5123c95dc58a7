//! The targets of scotfree-study: OTLP's messages as protobuf and as JSON.
//!
//! Invariant: each record is a row or a dropped one; the rows do not depend on how many are asked for at a time; what
//! the transcoder writes its decoder reads.

use scotfree_study::otlp::{
    from_json, AttributeTable, MetricDecoder, Pairs, Signal, SpanColumns, SpanDecoder, Trouble,
};

const JSON: &str = r#"{"resourceSpans":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"Cart"}}]},
"scopeSpans":[{"spans":[{"traceId":"0102030405060708090a0b0c0d0e0f10","spanId":"0102030405060708","parentSpanId":
"0102030405060709","name":"Get","kind":3,"startTimeUnixNano":"1700000000000000000","endTimeUnixNano":
"1700000000000000042","attributes":[{"key":"rpc.request.size","value":{"intValue":"64"}},{"key":"rpc.cpu.cycles",
"value":{"doubleValue":1.5}},{"key":"rpc.grpc.status_code","value":{"intValue":5}}],"links":[{"attributes":[{"key":
"scotfree.link","value":{"stringValue":"hedge"}}]}],"status":{"code":2,"message":"CANCELLED"}},{"traceId":
"AQIDBAUGBwgJCgsMDQ4PEA==","spanId":"AQIDBAUGBwg=","startTimeUnixNano":5,"endTimeUnixNano":6}]}]}]}"#;
const METRICS: &str = r#"{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"name":"scotfree.requests","sum":{
"aggregationTemporality":2,"isMonotonic":true,"dataPoints":[{"timeUnixNano":"1000","asInt":"1"},{"timeUnixNano":
"2000","asDouble":7}]}},{"name":"rpc.server.duration","histogram":{"aggregationTemporality":1,"dataPoints":[{
"startTimeUnixNano":5,"timeUnixNano":10,"count":"3"}]}}]}]}]}"#;

/// Requests of JSON, for the targets that read it.
pub fn json_seeds() -> Vec<Vec<u8>> {
    [JSON, METRICS].map(|text| text.as_bytes().to_vec()).to_vec()
}

/// The same requests as protobuf.
pub fn proto_seeds() -> Vec<Vec<u8>> {
    let traces = from_json(JSON.as_bytes(), Signal::Traces).message;
    vec![traces, from_json(METRICS.as_bytes(), Signal::Metrics).message]
}

fn table() -> AttributeTable {
    let pairs = |of: &[(&str, &str)]| of.iter().map(|(key, to)| ((*key).into(), (*to).into())).collect();
    let errors = [vec!["rpc.grpc.status_code".into()], Vec::new(), vec!["error.type".into()]];
    let table = AttributeTable::new(&Pairs {
        integers: pairs(&[("rpc.request.size", "req_bytes")]),
        floats: pairs(&[("rpc.cpu.cycles", "cpu_cycles")]),
        texts: pairs(&[("service.name", "service")]),
        hedges: pairs(&[("scotfree.link", "hedge")]),
        errors,
        grpc: vec!["OK".into(), "CANCELLED".into()],
        http: Vec::new(),
    });
    table.expect("no key has two meanings")
}

/// Reads the input as messages of spans and of metrics.
pub fn proto(data: &[u8]) {
    let whole = spans(data, usize::MAX);
    let by_ones = spans(data, 1);
    assert_eq!(whole.1, by_ones.1, "records depend on how many are asked for");
    let ids = |of: &[SpanColumns]| -> Vec<i64> { of.iter().flat_map(|part| part.span_ids.clone()).collect() };
    assert_eq!(ids(&whole.0), ids(&by_ones.0));
    metrics(data);
}

/// All rows, and how many records there were.
fn spans(data: &[u8], rows_max: usize) -> (Vec<SpanColumns>, u64) {
    let mut decoder = SpanDecoder::new(table());
    let mut parts = Vec::new();
    decoder.start(data.len());
    while !decoder.decode(data, rows_max) {
        parts.push(decoder.take());
    }
    parts.push(decoder.take());
    let rows: usize = parts.iter().map(check).sum();
    let troubles = decoder.take_troubles();
    let dropped: u64 = troubles.iter().filter(|(_, trouble)| !trouble.is_kept).map(|(_, it)| it.count).sum();
    assert_eq!(rows as u64 + dropped, decoder.records(), "a record is lost");
    (parts, decoder.records())
}

fn check(part: &SpanColumns) -> usize {
    let rows = part.rows();
    assert_eq!([part.trace_ids.len(), part.records.len(), part.kinds.len()], [16 * rows, rows, rows]);
    for texts in part.texts.iter().map(|(_, texts)| texts).chain([&part.names, &part.statuses]) {
        assert_eq!(texts.codes.len(), rows);
        assert!(texts.codes.iter().all(|code| rows == 0 || (*code as usize) < texts.offsets.len()));
        assert!(texts
            .offsets
            .windows(2)
            .all(|pair| texts.text.get(pair[0] as usize..pair[1] as usize).is_some()));
    }
    rows
}

fn metrics(data: &[u8]) {
    let mut decoder = MetricDecoder::new(table());
    decoder.read(data);
    let troubles = decoder.take_troubles();
    let dropped: u64 = troubles.iter().map(|(_, trouble)| trouble.count).sum();
    let (columns, firsts) = decoder.take();
    assert!(columns.values.iter().all(|value| value.is_finite()));
    assert_eq!(columns.values.len() as u64 + firsts + dropped, decoder.records(), "a point is lost");
}

/// Makes the input protobuf, and reads that: what was written is whole.
pub fn json(data: &[u8]) {
    let message = from_json(data, Signal::Traces).message;
    let mut decoder = SpanDecoder::new(table());
    decoder.start(message.len());
    assert!(decoder.decode(&message, usize::MAX));
    is_whole(&decoder.take_troubles());
    let message = from_json(data, Signal::Metrics).message;
    let mut decoder = MetricDecoder::new(table());
    decoder.read(&message);
    is_whole(&decoder.take_troubles());
}

fn is_whole(troubles: &[(String, Trouble)]) {
    let broken = ["ends early", "the bytes are no OTLP message", "the bytes are no OTLP span"];
    let found = troubles.iter().find(|(reason, _)| broken.contains(&reason.as_str()));
    assert_eq!(found, None, "the transcoder wrote what is no message");
}
