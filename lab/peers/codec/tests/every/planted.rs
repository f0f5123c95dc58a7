//! Faults in the codec, one at a time: for each there is a check here that finds it.

use crate::{all, bad};
use codec_peers::every::every::{kinds, three, two};
use scotfree_transform::planted::{with, Fault};
use std::panic::{catch_unwind, AssertUnwindSafe};

/// The check that a fault must not pass; without one, each is a test of its own.
fn check_of(fault: Fault) -> fn() {
    match fault {
        Fault::SkipEndCheck => bad::a_number_that_ends_behind_its_message_is_cut,
        Fault::AcceptOverlongTag => bad::a_tag_of_more_than_five_bytes_is_overlong,
        Fault::ArenaBeyondLimit => bad::slots_are_refused_at_the_limit_and_not_before,
        Fault::SkipUtf8BlockEdge => bad::strings_that_are_no_utf8_are_told_at_each_place_of_each_length,
        Fault::DropPresenceOfZero
        | Fault::ShortLength
        | Fault::FirstWins
        | Fault::ForgetUnknown
        | Fault::MapFirstWins
        | Fault::LoseBitOfNinthByte => as_prost_reflect,
        Fault::TextBehindEnd | Fault::StaleId => unreachable!("Thrift's: see tests/lines"),
    }
}

/// Few messages of each file, beside another codec.
fn as_prost_reflect() {
    all::<three::All>("every.three.All", 20);
    all::<two::Needs>("every.two.Needs", 20);
    all::<kinds::Maps>("every.kinds.Maps", 20);
}

fn is_found(fault: Fault, check: fn()) -> bool {
    catch_unwind(AssertUnwindSafe(|| with(fault, check))).is_err()
}

#[test]
fn each_fault_is_found() {
    for fault in Fault::ALL {
        assert!(is_found(fault, check_of(fault)), "{fault:?} passes");
    }
}

#[test]
fn no_fault_stays_when_its_work_is_over() {
    assert!(is_found(Fault::ForgetUnknown, as_prost_reflect));
    as_prost_reflect();
}
