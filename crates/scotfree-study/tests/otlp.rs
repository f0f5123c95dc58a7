//! OTLP's decoders under any bytes: each record is a row or a dropped one, whatever they are and however they are cut.

use proptest::prelude::*;
use scotfree_study::otlp::{from_json, AttributeTable, MetricDecoder, Pairs, Signal, SpanDecoder};

fn table() -> AttributeTable {
    let pairs = |of: &[(&str, &str)]| of.iter().map(|(key, to)| ((*key).into(), (*to).into())).collect();
    let integers = pairs(&[("rpc.request.size", "req_bytes"), ("size", "req_bytes")]);
    let texts = pairs(&[("service.name", "service")]);
    AttributeTable::new(&Pairs { integers, texts, ..Pairs::default() }).expect("no key has two meanings")
}

/// A request of so many spans; their ids count from 1.
fn request(spans: usize) -> Vec<u8> {
    let span = |number: usize| {
        let end = 5 + number;
        format!(
            r#"{{"traceId":"{number:032x}","spanId":"{number:016x}","name":"Get","startTimeUnixNano":"5",
            "endTimeUnixNano":"{end}","attributes":[{{"key":"size","value":{{"intValue":"{number}"}}}}]}}"#
        )
    };
    let spans = (1..=spans).map(span).collect::<Vec<_>>().join(",");
    let service = r#"{"attributes":[{"key":"service.name","value":{"stringValue":"Cart"}}]}"#;
    let text =
        format!(r#"{{"resourceSpans":[{{"resource":{service},"scopeSpans":[{{"spans":[{spans}]}}]}}]}}"#);
    let found = from_json(text.as_bytes(), Signal::Traces);
    assert_eq!((found.wrong, found.broken), (0, None));
    found.message
}

/// Ids of rows, and how many records were dropped.
fn read(message: &[u8], rows_max: usize) -> (Vec<i64>, u64) {
    let mut decoder = SpanDecoder::new(table());
    let mut ids = Vec::new();
    decoder.start(message.len());
    loop {
        let is_over = decoder.decode(message, rows_max);
        let part = decoder.take();
        assert!(part.rows() <= rows_max);
        assert!(part.texts.iter().all(|(_, texts)| texts.codes.len() == part.rows()));
        ids.extend(part.span_ids);
        if is_over {
            break;
        }
    }
    let troubles = decoder.take_troubles();
    let dropped =
        troubles.iter().filter(|(_, trouble)| !trouble.is_kept).map(|(_, trouble)| trouble.count).sum();
    assert_eq!(ids.len() as u64 + dropped, decoder.records());
    (ids, dropped)
}

#[test]
fn every_prefix_gives_the_spans_that_it_holds() {
    let message = request(6);
    let mut before = 0;
    for end in 0..=message.len() {
        let (ids, dropped) = read(&message[..end], usize::MAX);
        assert_eq!(ids, (1..=ids.len() as i64).collect::<Vec<_>>(), "cut at {end}");
        assert!(ids.len() >= before && dropped <= 1, "cut at {end}");
        before = ids.len();
    }
    assert_eq!(before, 6);
}

#[test]
fn the_service_of_a_resource_is_that_of_every_part() {
    let message = request(5);
    let mut decoder = SpanDecoder::new(table());
    decoder.start(message.len());
    for _ in 0..2 {
        assert!(!decoder.decode(&message, 2));
        assert_eq!(decoder.take().texts[0].1.text, "Cart");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn rows_do_not_depend_on_how_many_are_asked_for(spans in 0_usize..20, rows_max in 1_usize..8) {
        let message = request(spans);
        prop_assert_eq!(read(&message, rows_max), read(&message, usize::MAX));
    }

    #[test]
    fn wrong_bytes_are_counted(flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4)) {
        let mut message = request(4);
        for (at, byte) in flips {
            let at = at.index(message.len());
            message[at] ^= byte;
        }
        prop_assert_eq!(read(&message, 3), read(&message, usize::MAX));
    }

    #[test]
    fn any_bytes_are_counted(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert_eq!(read(&bytes, 3), read(&bytes, usize::MAX));
        let mut metrics = MetricDecoder::new(table());
        metrics.read(&bytes);
        let dropped: u64 = metrics.take_troubles().iter().map(|(_, trouble)| trouble.count).sum();
        let (columns, firsts) = metrics.take();
        prop_assert_eq!(columns.values.len() as u64 + firsts + dropped, metrics.records());
        for signal in [Signal::Traces, Signal::Metrics] {
            let message = from_json(&bytes, signal).message;
            prop_assert_eq!(read(&message, 3).1, 0);
        }
    }
}
