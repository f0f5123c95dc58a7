//! What a record's attributes say, before it is known which of them count.
//!
//! Invariant: of two values of one column that of the lower rank is kept, of equal ranks the later.

use super::table::AttributeTable;

/// The rank of what was not said.
pub(super) const NO_RANK: u16 = u16::MAX;

/// What attributes said, as ranks and values by column; a rank of `NO_RANK` says nothing.
#[derive(Debug, Clone, Default)]
pub(super) struct Said {
    pub integers: Vec<(u16, i64)>,
    pub floats: Vec<(u16, f64)>,
    pub texts: Vec<(u16, i32)>,
    pub error: (u16, i32),
    /// Whether the error's type says by itself that there is one.
    pub has_failed: bool,
    pub is_hedge: bool,
}

impl Said {
    pub fn nothing(table: &AttributeTable) -> Self {
        Said {
            integers: vec![(NO_RANK, 0); table.integers.len()],
            floats: vec![(NO_RANK, 0.0); table.floats.len()],
            texts: vec![(NO_RANK, 0); table.texts.len()],
            error: (NO_RANK, 0),
            has_failed: false,
            is_hedge: false,
        }
    }

    pub fn clear(&mut self) {
        self.integers.fill((NO_RANK, 0));
        self.floats.fill((NO_RANK, 0.0));
        self.texts.fill((NO_RANK, 0));
        self.error = (NO_RANK, 0);
        self.has_failed = false;
        self.is_hedge = false;
    }
}

pub(super) fn better<T>(known: &mut (u16, T), rank: u16, value: T) {
    if rank <= known.0 {
        *known = (rank, value);
    }
}

pub(super) fn pairs<'a, T>(own: &'a [T], resource: &'a [T]) -> impl Iterator<Item = (&'a T, &'a T)> {
    own.iter().zip(resource)
}

pub(super) fn first<T>(own: (u16, T), resource: (u16, T)) -> Option<T> {
    match (own, resource) {
        ((rank, value), _) | (_, (rank, value)) if rank != NO_RANK => Some(value),
        _ => None,
    }
}
