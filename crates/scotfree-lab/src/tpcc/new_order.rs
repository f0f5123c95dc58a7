//! A new order: a number from its district, goods from the stock of its warehouse.
//!
//! Invariant: the lines of an order are written before the order, and the order before its customer's last
//! one is said to be it.

use super::{Customer, TpccClient, ITEMS};
use crate::transactions::{Failure, Store};
use std::collections::BTreeMap;

/// As TPC-C has it.
const LINES: std::ops::RangeInclusive<u32> = 5..=15;
const QUANTITY_MAX: u32 = 10;
const DISTRICT_INFO: &str = "twenty-four bytes of text";

impl TpccClient {
    pub(super) fn new_order(&mut self, store: &mut Store) -> Result<(), Failure> {
        let customer = self.any_customer();
        let wanted = self.any_items();
        let Customer { warehouse, district, .. } = customer;
        let lock = self.lock(warehouse, store)?;
        let tpcc = &self.tpcc;
        let next_key = tpcc.of_district("next", warehouse, district);
        let next = store.number(&next_key)? + 1;
        let prices = store.numbers(&wanted.keys().map(|item| tpcc.price(*item)).collect::<Vec<_>>())?;
        let stock_keys: Vec<String> = wanted.keys().map(|item| tpcc.stock(warehouse, *item)).collect();
        let stocks = store.numbers(&stock_keys)?;
        for (line, ((item, quantity), price)) in wanted.iter().zip(prices).enumerate() {
            let text = format!("{item} {quantity} {} {DISTRICT_INFO}", i64::from(*quantity) * price);
            store.push(&["SET", &tpcc.line(warehouse, district, next, line), &text])?;
        }
        for ((key, stock), quantity) in stock_keys.iter().zip(stocks).zip(wanted.values()) {
            store.push(&["SET", key, &(stock - i64::from(*quantity)).to_string()])?;
        }
        let order = format!("{} {}", customer.number, wanted.len());
        store.push(&["SET", &tpcc.order(warehouse, district, next), &order])?;
        store.push(&["SET", &tpcc.of_customer("last", customer), &next.to_string()])?;
        store.push(&["SET", &next_key, &next.to_string()])?;
        self.unlock(&lock, store)?;
        self.books.ordered(customer, &wanted);
        Ok(())
    }

    /// Different items with their quantities.
    fn any_items(&mut self) -> BTreeMap<u32, u32> {
        let lines = LINES.start() + self.below(LINES.end() - LINES.start() + 1);
        let mut items = BTreeMap::new();
        while items.len() < lines as usize {
            items.insert(self.below(ITEMS), 1 + self.below(QUANTITY_MAX));
        }
        items
    }
}
