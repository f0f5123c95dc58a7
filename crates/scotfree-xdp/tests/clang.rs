//! The compiler of the programs in the kernel is the known one, or else the newest that will do.

#[path = "../clang.rs"]
#[allow(dead_code, reason = "the rest is for build scripts")]
mod clang;

use clang::{choose, version_told};

#[test]
fn the_known_one_goes_before_newer_ones_and_old_ones_are_none() {
    let chosen = |versions: &[u32], usual| choose(versions, usual);
    assert_eq!(chosen(&[], None), None);
    assert_eq!(chosen(&[9, 13], Some(13)), None);
    assert_eq!(chosen(&[9, 13], Some(19)).as_deref(), Some("clang"));
    assert_eq!(chosen(&[16, 19, 13], Some(19)).as_deref(), Some("clang-19"));
    assert_eq!(chosen(&[19, 14, 22], Some(22)).as_deref(), Some("clang-14"));
}

#[test]
fn the_version_is_read_from_the_first_line() {
    let debian = "Debian clang version 14.0.6\nTarget: x86_64-pc-linux-gnu\n";
    assert_eq!(version_told(debian), Some(14));
    assert_eq!(version_told("Ubuntu clang version 18.1.3 (1ubuntu1)\n"), Some(18));
    assert_eq!(version_told("clang: error\n"), None);
    assert_eq!(version_told(""), None);
}
