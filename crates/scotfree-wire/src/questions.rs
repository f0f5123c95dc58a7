//! An operator's questions to a function of a device, or to a proxy's cache, over the listener of `/metrics`.
//!
//! Invariant: only who holds the cluster's secret is answered, since answers name users' keys, and only while the
//! question is fresh: what was overheard is worth nothing half a minute later.

use crate::{ClusterKey, Key};
use scotfree_core::{from_hex, to_hex, Nanos};

/// How far the clocks of who asks and who answers may differ, and how long a question is on its way.
const FRESH: Nanos = Nanos::from_secs(30);
const PATH: &str = "/functions/";

/// Where a question to the function `name` is asked, at this real time.
pub fn target(key: &ClusterKey, name: &str, question: &str, now: Nanos) -> String {
    let mac = mac(&key.questions().newest(), name, question, now.0);
    format!("{PATH}{name}?{mac:016x}.{}.{}", now.0, to_hex(question.as_bytes()))
}

/// The function that a target is about, and the question, if it is signed and fresh.
///
/// # Errors
/// In words for whoever asked; it says nothing of keys.
pub fn asked<'t>(key: &ClusterKey, target: &'t str, now: Nanos) -> Result<(&'t str, String), String> {
    let malformed = || format!("{PATH}NAME?MAC.TIME.QUESTION is asked by `scot cache`, and signed");
    let (name, signed) =
        target.strip_prefix(PATH).and_then(|rest| rest.split_once('?')).ok_or_else(malformed)?;
    let mut parts = signed.split('.');
    let [Some(given), Some(at), Some(question), None] = std::array::from_fn(|_| parts.next()) else {
        return Err(malformed());
    };
    let given = u64::from_str_radix(given, 16).map_err(|_| malformed())?;
    let at: u64 = at.parse().map_err(|_| malformed())?;
    let question =
        from_hex(question).and_then(|bytes| String::from_utf8(bytes).ok()).ok_or_else(malformed)?;
    if !key.questions().all().any(|key| mac(&key, name, &question, at) == given) {
        return Err("the question is not signed with this cluster's key: give its --key-file".to_owned());
    }
    if at.abs_diff(now.0) > FRESH.0 {
        return Err(format!(
            "the question is of another time: the clocks of both machines may differ by {} s",
            FRESH.0 / 1_000_000_000
        ));
    }
    Ok((name, question))
}

/// Whether somebody asks a function.
pub fn is_question(target: &[u8]) -> bool {
    target.starts_with(PATH.as_bytes())
}

fn mac(key: &Key, name: &str, question: &str, at: u64) -> u64 {
    let lengths = [name.len() as u64, question.len() as u64, at].map(u64::to_le_bytes).concat();
    key.mac(&[&lengths, name.as_bytes(), question.as_bytes()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_answered_to_who_holds_the_secret_while_it_is_fresh() {
        let (ours, others) = (ClusterKey::from_bytes([1; 32]), ClusterKey::from_bytes([2; 32]));
        let now = Nanos::from_secs(1_000);
        let good = target(&ours, "cache", "why 0 6b", now);
        assert_eq!(asked(&ours, &good, now), Ok(("cache", "why 0 6b".to_owned())));
        assert_eq!(asked(&ours, &good, now.plus(Nanos::from_secs(29))), Ok(("cache", "why 0 6b".to_owned())));
        let late = asked(&ours, &good, now.plus(Nanos::from_secs(31))).expect_err("it is old");
        assert!(late.contains("of another time"), "{late}");
        let foreign = asked(&others, &good, now).expect_err("another secret");
        assert!(foreign.contains("--key-file") && !foreign.contains("6b"), "{foreign}");
    }

    #[test]
    fn what_was_changed_on_the_way_is_refused() {
        let key = ClusterKey::from_bytes([1; 32]);
        let now = Nanos::from_secs(1_000);
        let good = target(&key, "cache", "ls 5", now);
        for at in 0..good.len() {
            let mut changed = good.clone().into_bytes();
            changed[at] ^= 1;
            let changed = String::from_utf8(changed).expect("it stays ASCII");
            assert!(asked(&key, &changed, now).is_err(), "{changed}");
        }
        for wrong in [
            "/functions/",
            "/functions/cache",
            "/functions/cache?",
            "/functions/cache?1.2",
            "/functions/c?x.1.6b",
        ] {
            assert!(asked(&key, wrong, now).is_err(), "{wrong}");
        }
    }
}
