//! The order in which items are evicted: SIEVE (Zhang and others, NSDI 2024), for each size class by itself, since only
//! an item of its class leaves the slot that a new one needs.
//!
//! Invariant: the list of a class holds its live items, newest to oldest in the order of their coming; reading one
//! only marks it, and the hand moves from old to new.

use crate::class::{Class, CLASS_COUNT};
use crate::items::{Items, Place};

/// How many marks the hand takes away before it evicts all the same, so that no write waits for a walk over all.
const STEPS_MAX: usize = 64;
/// How far an item may lie from the first: links are of 32 bits and count eights.
pub(crate) const OFFSET_MAX: usize = (u32::MAX as usize - 1) * 8;

/// The order of one class. 0 for none.
#[derive(Debug, Clone, Copy, Default)]
struct Order {
    newest: u32,
    oldest: u32,
    hand: u32,
}

/// The orders of all classes.
pub(crate) struct Sieve {
    /// Those of slots, and that of items with segments of their own.
    orders: Vec<Order>,
}

fn number(place: Place) -> u32 {
    (place.offset() / 8 + 1) as u32
}

fn place(number: u32) -> Place {
    Place::new((number as usize - 1) * 8)
}

impl Sieve {
    pub fn new() -> Sieve {
        Sieve { orders: vec![Order::default(); CLASS_COUNT + 1] }
    }

    fn order(&mut self, class: Option<Class>) -> &mut Order {
        &mut self.orders[class.map_or(CLASS_COUNT, |class| usize::from(class.0))]
    }

    /// Takes a new item in, unmarked.
    pub fn add(&mut self, items: &mut Items, added: Place) {
        let order = self.order(items.class_of(added));
        let older = std::mem::replace(&mut order.newest, number(added));
        if older == 0 {
            order.oldest = number(added);
        } else {
            let (_, oldest) = items.links(place(older));
            items.set_links(place(older), number(added), oldest);
        }
        items.set_links(added, 0, older);
    }

    /// Forgets an item that goes.
    pub fn remove(&mut self, items: &mut Items, removed: Place) {
        let (newer, older) = items.links(removed);
        let order = self.order(items.class_of(removed));
        if order.hand == number(removed) {
            order.hand = newer;
        }
        if newer == 0 {
            order.newest = older;
        } else {
            let (beyond, _) = items.links(place(newer));
            items.set_links(place(newer), beyond, older);
        }
        if older == 0 {
            order.oldest = newer;
        } else {
            let (_, beyond) = items.links(place(older));
            items.set_links(place(older), newer, beyond);
        }
    }

    /// The item of a class that goes next.
    pub fn victim(&mut self, items: &mut Items, class: Option<Class>) -> Option<Place> {
        let order = self.order(class);
        for _ in 0..STEPS_MAX {
            let at = if order.hand == 0 { order.oldest } else { order.hand };
            if at == 0 {
                return None;
            }
            order.hand = at;
            if !items.head(place(at)).is_visited() {
                break;
            }
            items.set_visited(place(at), false);
            order.hand = items.links(place(at)).0;
        }
        let at = if order.hand == 0 { order.oldest } else { order.hand };
        (at != 0).then(|| place(at))
    }
}
