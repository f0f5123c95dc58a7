//! What is counted, as the metrics name it.

/// One count of a function's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Count {
    /// Its name in the metrics.
    pub name: &'static str,
    /// What it counts.
    pub help: &'static str,
    /// `name="value"` pairs with commas, or nothing.
    pub labels: &'static str,
    /// How much.
    pub value: u64,
}

impl Count {
    /// Whether it is how much there is now, which may become less: what has only ever been counted is a `_total`.
    pub fn is_gauge(&self) -> bool {
        !self.name.ends_with("_total")
    }
}
