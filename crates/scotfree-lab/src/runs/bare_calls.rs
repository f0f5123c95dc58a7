//! Calls from the client's host without the runtime.
//!
//! Invariant: whatever answers them, the caller is the same.

use super::worker::bare_calls::{Answerer, BareCallsReport, BareCallsSpec};
use super::worker::WorkerSpec;
use scotfree_core::Tier;
use scotfree_stage::site::Site;
use scotfree_stage::trouble::Trouble;

/// Calls to be made from the client's host without the runtime.
#[derive(Debug, Clone, Copy)]
pub(super) struct BareCalls {
    /// The client's port before which a program stands that lets everything pass, if one does.
    pub pass_at: Option<&'static str>,
    pub tier: Tier,
    pub answerer: Answerer,
    pub outstanding: usize,
    pub interval_us: u64,
    pub spin_us: u64,
    pub payload_bytes: usize,
    pub count: u64,
}

/// Makes calls from the client's host and measures them.
pub(super) fn bare_calls(site: &Site<'_>, calls: &BareCalls) -> Result<BareCallsReport, Trouble> {
    let spec = BareCallsSpec {
        server: site.server(),
        cluster_key: site.cluster_key(),
        tier: calls.tier,
        answerer: calls.answerer,
        outstanding: calls.outstanding,
        interval_us: calls.interval_us,
        spin_us: calls.spin_us,
        payload_bytes: calls.payload_bytes,
        calls: calls.count,
        pass_at: calls.pass_at.map(str::to_owned),
    };
    site.run_worker("client", "bare-calls", &WorkerSpec::BareCalls(spec))
}
