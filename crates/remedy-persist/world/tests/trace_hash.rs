//! What happens for a seed, pinned by the hash of all that the trace would show: moving code about changes
//! nothing.
//!
//! A decision of the protocol that changes on purpose changes these hashes. Then look at one seed's trace
//! before and after (`make sim SEED=n`), put in the hashes that the failures print, and say in the commit
//! which decision it was.

use remedy_persist_world::{campaign, made, Depth, Options, Scenario};
use std::ops::Range;

fn hash_of(scenario: fn(u64) -> Scenario, seeds: Range<u64>) -> u64 {
    let options = Options { scenario: &scenario, depth: Depth::Hashed, ..Options::default() };
    let report = campaign(seeds, &options, |_| {});
    assert!(report.failures.is_empty(), "{}", report.failures[0]);
    report.total.tally.trace_hash
}

fn assert_same(found: u64, expected: u64, what: &str) {
    assert!(found == expected, "{what}: the hash is {found:#018x}, and was {expected:#018x}");
}

#[test]
fn random_worlds_go_as_they_went() {
    assert_same(hash_of(Scenario::random, 0..200), 0xe17e_3e48_7fde_a8e7, "seeds 0..200");
}

#[test]
fn a_world_in_which_a_record_is_erased_while_its_commit_runs_goes_as_it_went() {
    assert_same(hash_of(Scenario::random, 1_073..1_074), 0xab3c_8525_1f68_81b2, "seed 1073");
}

#[test]
fn storms_go_as_they_went() {
    assert_same(hash_of(Scenario::storm, 0..20), 0x2052_495e_b98b_690e, "storms 0..20");
}

#[test]
fn worlds_of_several_servers_go_as_they_went() {
    assert_same(hash_of(Scenario::several, 0..40), 0x0a19_c3e3_a76f_008b, "several 0..40");
}

#[test]
fn made_worlds_go_as_they_went() {
    let expected = [
        ("left-behind", 0xedfa_395d_769c_f4e8),
        ("silent-death", 0x8537_33b2_e3c8_ce29),
        ("return-of-the-device", 0x60b8_c808_166f_4013),
        ("forgotten-run", 0x4f5b_20df_ce54_89a1),
        ("excluded-alive", 0x9908_4145_917d_1898),
        ("rotated-key", 0x00a9_977e_d2b7_941c),
        ("refused-replay", 0x69f0_f9c8_83f6_61e4),
    ];
    assert_eq!(made::ALL.map(|(name, _)| name), expected.map(|(name, _)| name));
    for ((name, maker), (_, hash)) in made::ALL.into_iter().zip(expected) {
        assert_same(hash_of(maker, 0..10), hash, name);
    }
}
