//! What the terminals were told, added up, and whether the store says the same.
//!
//! Invariant: every number of the store that a transaction changes is compared, most of them exactly and the
//! others by their sum.

use super::order_status::lines_of;
use super::{Customer, Tpcc, CUSTOMERS, DISTRICTS, ITEMS, STOCK_AT_FIRST};
use crate::transactions::{Failure, Findings, Store};
use std::collections::BTreeMap;

/// Orders and payments that were answered.
#[derive(Debug, Default)]
pub(super) struct Books {
    /// By warehouse and district.
    orders: BTreeMap<(u32, u32), i64>,
    /// By warehouse and item: how many were sold.
    sold: BTreeMap<(u32, u32), i64>,
    /// What each customer paid.
    paid: BTreeMap<Customer, i64>,
}

impl Books {
    pub(super) fn ordered(&mut self, customer: Customer, wanted: &BTreeMap<u32, u32>) {
        *self.orders.entry((customer.warehouse, customer.district)).or_default() += 1;
        for (item, quantity) in wanted {
            *self.sold.entry((customer.warehouse, *item)).or_default() += i64::from(*quantity);
        }
    }

    pub(super) fn paid(&mut self, customer: Customer, amount: i64) {
        *self.paid.entry(customer).or_default() += amount;
    }

    pub(super) fn add(&mut self, other: &Books) {
        add_up(&mut self.orders, &other.orders);
        add_up(&mut self.sold, &other.sold);
        add_up(&mut self.paid, &other.paid);
    }

    pub(super) fn compare(
        &self,
        tpcc: &Tpcc,
        store: &mut Store,
        findings: &mut Findings,
    ) -> Result<(), Failure> {
        for warehouse in 0..tpcc.warehouses {
            self.compare_stock(warehouse, tpcc, store, findings)?;
            self.compare_money(warehouse, tpcc, store, findings)?;
            for district in 0..DISTRICTS {
                self.compare_orders(warehouse, district, tpcc, store, findings)?;
            }
        }
        Ok(())
    }

    fn compare_stock(
        &self,
        warehouse: u32,
        tpcc: &Tpcc,
        store: &mut Store,
        findings: &mut Findings,
    ) -> Result<(), Failure> {
        let keys: Vec<String> = (0..ITEMS).map(|item| tpcc.stock(warehouse, item)).collect();
        for (item, stock) in (0..ITEMS).zip(store.numbers(&keys)?) {
            let sold = self.sold.get(&(warehouse, item)).unwrap_or(&0);
            findings.compare(&keys[item as usize], &stock, &(STOCK_AT_FIRST - sold));
        }
        Ok(())
    }

    /// TPC-C 3.3.2.1: what a warehouse took is what its districts took. And it is what its customers paid.
    fn compare_money(
        &self,
        warehouse: u32,
        tpcc: &Tpcc,
        store: &mut Store,
        findings: &mut Findings,
    ) -> Result<(), Failure> {
        let year = tpcc.of_warehouse("year", warehouse);
        let taken = store.number(&year)?;
        let districts: Vec<String> =
            (0..DISTRICTS).map(|district| tpcc.of_district("year", warehouse, district)).collect();
        findings.compare(&year, &taken, &store.numbers(&districts)?.iter().sum());
        let customers: Vec<Customer> = (0..DISTRICTS)
            .flat_map(|district| (0..CUSTOMERS).map(move |number| Customer { warehouse, district, number }))
            .collect();
        let keys: Vec<String> =
            customers.iter().map(|customer| tpcc.of_customer("balance", *customer)).collect();
        let paid = |customer: &Customer| self.paid.get(customer).copied().unwrap_or(0);
        findings.compare(&year, &taken, &customers.iter().map(paid).sum());
        for ((customer, key), balance) in customers.iter().zip(&keys).zip(store.numbers(&keys)?) {
            findings.compare(key, &balance, &-paid(customer));
        }
        Ok(())
    }

    /// TPC-C 3.3.2.2 and following: numbers of orders without gaps, and each order with all of its lines.
    fn compare_orders(
        &self,
        warehouse: u32,
        district: u32,
        tpcc: &Tpcc,
        store: &mut Store,
        findings: &mut Findings,
    ) -> Result<(), Failure> {
        let count = self.orders.get(&(warehouse, district)).copied().unwrap_or(0);
        let next = tpcc.of_district("next", warehouse, district);
        findings.compare(&next, &store.number(&next)?, &count);
        let orders: Vec<String> = (1..=count).map(|order| tpcc.order(warehouse, district, order)).collect();
        let mut lines = Vec::new();
        for (order, text) in (1..=count).zip(store.values(&orders)?) {
            let lines_count = text.as_deref().and_then(lines_of).unwrap_or(0);
            findings.compare("whether an order has lines", &(lines_count > 0), &true);
            lines.extend((0..lines_count).map(|line| tpcc.line(warehouse, district, order, line)));
        }
        let missing = store.values(&lines)?.into_iter().filter(Option::is_none).count();
        findings.compare("the count of missing lines of orders", &missing, &0);
        Ok(())
    }
}

fn add_up<Key: Copy + Ord>(sums: &mut BTreeMap<Key, i64>, others: &BTreeMap<Key, i64>) {
    for (key, number) in others {
        *sums.entry(*key).or_default() += number;
    }
}
