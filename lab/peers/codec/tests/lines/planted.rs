//! Faults in the straight line of Thrift, one at a time: for each there is a check here that finds it.

use crate::{random_structs_are_the_same_cut_and_damaged, what_is_no_struct_is_refused_at_its_place};
use scotfree_transform::planted::{with, Fault};
use std::panic::{catch_unwind, AssertUnwindSafe};

/// The check that a fault must not pass; without one, each is a test of its own.
fn check_of(fault: Fault) -> fn() {
    match fault {
        Fault::TextBehindEnd => what_is_no_struct_is_refused_at_its_place,
        _ => random_structs_are_the_same_cut_and_damaged,
    }
}

#[test]
fn each_fault_is_found() {
    for fault in Fault::THRIFT {
        let found = catch_unwind(AssertUnwindSafe(|| with(fault, check_of(fault)))).is_err();
        assert!(found, "{fault:?} passes");
    }
}
