//! An enquiry about a customer's last order, without a lock.

use super::{Customer, TpccClient};
use crate::transactions::{Failure, Store};

impl TpccClient {
    pub(super) fn enquire(&mut self, store: &mut Store) -> Result<(), Failure> {
        let customer = self.any_customer();
        let Customer { warehouse, district, .. } = customer;
        let tpcc = &self.tpcc;
        let first = [tpcc.of_customer("balance", customer), tpcc.of_customer("last", customer)];
        let last = store.numbers(&first)?[1];
        if last == 0 {
            return Ok(());
        }
        let order = store.values(&[tpcc.order(warehouse, district, last)])?.remove(0);
        let lines_count = order.as_deref().and_then(lines_of).unwrap_or(0);
        self.findings.compare("whether a customer's last order has lines", &(lines_count > 0), &true);
        let lines = |line| tpcc.line(warehouse, district, last, line);
        let lines = store.values(&(0..lines_count).map(lines).collect::<Vec<_>>())?;
        let missing = lines.iter().filter(|line| line.is_none()).count();
        self.findings.compare("the count of missing lines of an order", &missing, &0);
        Ok(())
    }
}

/// How many lines an order has.
pub(super) fn lines_of(order: &str) -> Option<usize> {
    order.split(' ').nth(1)?.parse().ok()
}
