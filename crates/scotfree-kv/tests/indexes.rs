//! One log under every structure: whatever is done over one is found by all the others.

mod common;

use common::{content, open, options_with, Driver, MemoryStorage};
use proptest::prelude::*;
use scotfree_core::SeqNum;
use scotfree_kv::{IndexKind, Value};
use scotfree_session::RequestKind;
use std::collections::BTreeMap;

/// So little that most scripts take snapshots.
const OPS_BYTES_MAX: u64 = 2_000;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

#[derive(Debug, Clone)]
enum Step {
    Set(String, String),
    Append(String, String),
    Del(String),
    /// The server ends, and comes back with another structure.
    Restart(IndexKind),
}

fn step() -> impl Strategy<Value = Step> {
    let key = || "[ab]{1,3}";
    prop_oneof![
        4 => (key(), "[a-z]{1,40}").prop_map(|(key, value)| Step::Set(key, value)),
        2 => (key(), "[a-z]{1,9}").prop_map(|(key, value)| Step::Append(key, value)),
        3 => key().prop_map(Step::Del),
        1 => proptest::sample::select(&IndexKind::ALL[..]).prop_map(Step::Restart),
    ]
}

/// What a step does to the model, the command that it is, and its reply.
fn play(step: &Step, model: &mut Model) -> Option<(String, String)> {
    // Database 0 precedes the name.
    let name = |key: &str| [&[0, 0], key.as_bytes()].concat();
    match step {
        Step::Set(key, value) => {
            model.insert(name(key), value.clone().into_bytes());
            Some((format!("SET {key} {value}"), "+OK\r\n".to_owned()))
        }
        Step::Append(key, added) => {
            let value = model.entry(name(key)).or_default();
            value.extend_from_slice(added.as_bytes());
            Some((format!("APPEND {key} {added}"), format!(":{}\r\n", value.len())))
        }
        Step::Del(key) => {
            let count = u8::from(model.remove(&name(key)).is_some());
            Some((format!("DEL {key}"), format!(":{count}\r\n")))
        }
        Step::Restart(_) => None,
    }
}

fn expected(model: &Model) -> BTreeMap<Vec<u8>, Value> {
    model.iter().map(|(key, value)| (key.clone(), Value::Text(value.clone()))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn every_structure_recovers_what_was_written_over_the_others(
        first in proptest::sample::select(&IndexKind::ALL[..]),
        steps in proptest::collection::vec(step(), 0..120),
    ) {
        let storage = MemoryStorage::of(Vec::new());
        let (service, _) = open(&storage, &options_with(first, OPS_BYTES_MAX)).expect("a new log");
        let mut driver = Driver::new(service);
        driver.start_session(1);
        let (mut model, mut seq) = (Model::new(), 0);
        // All of them read the end, too.
        let ends = IndexKind::ALL.map(Step::Restart);
        for step in steps.iter().chain(&ends) {
            if let Step::Restart(index) = step {
                driver.settle();
                drop(driver);
                let opened = open(&storage, &options_with(*index, OPS_BYTES_MAX));
                let (service, recovery) = opened.expect("our own log");
                prop_assert_eq!(content(service.store()), expected(&model), "{:?}", index);
                prop_assert_eq!(recovery.sessions[0].position, SeqNum(seq));
                driver = Driver::new(service);
            }
            if let Some((line, reply)) = play(step, &mut model) {
                seq += 1;
                prop_assert_eq!(driver.run(RequestKind::Update, 1, seq, &line), reply, "{}", line);
                driver.settle();
            }
        }
    }
}
