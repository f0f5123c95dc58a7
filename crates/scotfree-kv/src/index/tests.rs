//! Every structure against the standard library's B-tree, and each against its own invariant.

use super::crit_bit::CritBitTree;
use super::red_black::RedBlackTree;
use super::skip_list::SkipList;
use super::{Index, IndexKind};
use proptest::prelude::*;
use std::collections::BTreeMap;

type Model = BTreeMap<Vec<u8>, u32>;

#[derive(Debug, Clone)]
enum Call {
    Insert(Vec<u8>, u32),
    Remove(Vec<u8>),
    Change(Vec<u8>, u32),
    Get(Vec<u8>),
}

/// Few short keys of extreme bytes: they meet again, and are beginnings of each other.
fn key() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(prop_oneof![Just(0), Just(1), Just(127), Just(128), Just(255)], 0..4)
}

fn call() -> impl Strategy<Value = Call> {
    prop_oneof![
        4 => (key(), any::<u32>()).prop_map(|(key, value)| Call::Insert(key, value)),
        3 => key().prop_map(Call::Remove),
        1 => (key(), any::<u32>()).prop_map(|(key, value)| Call::Change(key, value)),
        1 => key().prop_map(Call::Get),
    ]
}

/// The same call of both gives the same.
fn make(call: &Call, index: &mut dyn Index<u32>, model: &mut Model) {
    match call {
        Call::Insert(key, value) => {
            assert_eq!(index.insert(key.clone(), *value), model.insert(key.clone(), *value));
        }
        Call::Remove(key) => assert_eq!(index.remove(key), model.remove(key)),
        Call::Change(key, value) => {
            let (found, wanted) = (index.get_mut(key), model.get_mut(key));
            assert_eq!(found.is_some(), wanted.is_some());
            found.into_iter().chain(wanted).for_each(|place| *place = *value);
        }
        Call::Get(key) => assert_eq!(index.get(key), model.get(key)),
    }
    assert_eq!(index.len(), model.len());
}

fn content(index: &dyn Index<u32>) -> Model {
    let pairs: Vec<_> = index.iter().map(|(key, value)| (key.to_vec(), *value)).collect();
    let content: Model = pairs.iter().cloned().collect();
    assert_eq!(content.len(), pairs.len(), "a key comes twice");
    content
}

/// Makes the calls, and compares after each the keys that the structure's own check found.
fn make_all<I: Index<u32> + Default>(calls: &[Call], checked_keys: fn(&I) -> Vec<Vec<u8>>) {
    let (mut index, mut model) = (I::default(), Model::new());
    for call in calls {
        make(call, &mut index, &mut model);
        assert!(checked_keys(&index).iter().eq(model.keys()), "{call:?}");
    }
}

proptest! {
    #[test]
    fn all_hold_what_the_model_holds(calls in proptest::collection::vec(call(), 0..200)) {
        for kind in IndexKind::ALL {
            let (mut index, mut model) = (kind.empty(), Model::new());
            for call in &calls {
                make(call, index.as_mut(), &mut model);
            }
            prop_assert_eq!(content(index.as_ref()), model, "{:?}", kind);
        }
    }

    #[test]
    fn each_keeps_its_invariant_after_every_call(calls in proptest::collection::vec(call(), 0..200)) {
        make_all(&calls, CritBitTree::checked_keys);
        make_all(&calls, RedBlackTree::checked_keys);
        make_all(&calls, SkipList::checked_keys);
    }
}

#[test]
fn many_keys_come_and_go_in_every_order() {
    const COUNT: u32 = 4_000;
    let key = |number: u32| number.to_be_bytes().to_vec();
    // 7 and 4,000 have no common divisor, so each number comes once.
    let orders: [fn(u32) -> u32; 3] = [|n| n, |n| COUNT - 1 - n, |n| n * 7 % COUNT];
    for kind in IndexKind::ALL {
        for (come, go) in orders.iter().zip(orders.iter().cycle().skip(1)) {
            let mut index = kind.empty();
            (0..COUNT).map(come).for_each(|number| assert_eq!(index.insert(key(number), number), None));
            assert_eq!(index.len(), COUNT as usize);
            for number in (0..COUNT).map(go) {
                assert_eq!(index.get(&key(number)), Some(&number), "{kind:?}");
                assert_eq!(index.remove(&key(number)), Some(number), "{kind:?}");
                assert_eq!(index.get(&key(number)), None, "{kind:?}");
            }
            assert!(index.len() == 0 && index.iter().next().is_none(), "{kind:?}");
        }
    }
}

#[test]
fn a_skip_list_s_levels_are_quarters() {
    let mut list = SkipList::default();
    for number in 0..20_000_u32 {
        list.insert(number.to_be_bytes().to_vec(), number);
    }
    for (level, expected) in [(0, 20_000), (1, 5_000), (2, 1_250), (3, 312)] {
        let count = list.count_on(level);
        assert!(count.abs_diff(expected) * 4 <= expected, "{count} on level {level}");
    }
}
