//! A payment: it adds to what warehouse and district took this year and takes from what the customer owes.

use super::{Customer, TpccClient};
use crate::transactions::{Failure, Store};

const AMOUNT_MAX: u32 = 500_000;

impl TpccClient {
    pub(super) fn pay(&mut self, store: &mut Store) -> Result<(), Failure> {
        let customer = self.any_customer();
        let amount = i64::from(1 + self.below(AMOUNT_MAX));
        let Customer { warehouse, district, .. } = customer;
        let lock = self.lock(warehouse, store)?;
        let tpcc = &self.tpcc;
        let keys = [
            tpcc.of_warehouse("year", warehouse),
            tpcc.of_district("year", warehouse, district),
            tpcc.of_customer("balance", customer),
        ];
        let before = store.numbers(&keys)?;
        for ((key, number), change) in keys.iter().zip(before).zip([amount, amount, -amount]) {
            store.push(&["SET", key, &(number + change).to_string()])?;
        }
        let history = tpcc.of_customer("history", customer);
        store.push(&["SET", &format!("{history}:{}", lock.token()), &amount.to_string()])?;
        self.unlock(&lock, store)?;
        self.books.paid(customer, amount);
        Ok(())
    }
}
