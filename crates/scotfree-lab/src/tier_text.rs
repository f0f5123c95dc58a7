//! A tier as files of the lab have it, for serde's `with`: the same text as in commands.

use scotfree_core::Tier;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serializer};

#[expect(clippy::trivially_copy_pass_by_ref, reason = "so serde calls it")]
pub fn serialize<S: Serializer>(tier: &Tier, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(tier)
}

pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Tier, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
}
