//! Runs an application's transactions on a service that speaks RESP.

use crate::tpcc::Tpcc;
use crate::transactions::{self, LoopReport, LoopSpec};
use crate::twitter::pull::Pull;
use crate::twitter::push::Push;
use crate::twitter::Users;
use scotfree_stage::trouble::Trouble;
use serde::{Deserialize, Serialize};

/// Which application, and how.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TransactionsSpec {
    /// The application.
    pub application: ApplicationSpec,
    /// How its transactions are run.
    pub how: LoopSpec,
}

/// An application.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ApplicationSpec {
    /// A small Twitter that distributes posts when they are written.
    TwitterPush(Users),
    /// A small Twitter that collects posts when they are read.
    TwitterPull(Users),
    /// Orders and payments.
    Tpcc(Tpcc),
}

pub(super) fn run(spec: &TransactionsSpec) -> Result<LoopReport, Trouble> {
    let report = match &spec.application {
        ApplicationSpec::TwitterPush(users) => transactions::run(&Push(users.clone()), &spec.how),
        ApplicationSpec::TwitterPull(users) => transactions::run(&Pull(users.clone()), &spec.how),
        ApplicationSpec::Tpcc(tpcc) => transactions::run(tpcc, &spec.how),
    };
    report.map_err(|failure| {
        let next = "see whether the service listens there, and its log";
        Trouble::new(format!("run transactions at {}", spec.how.address), failure, next)
    })
}
