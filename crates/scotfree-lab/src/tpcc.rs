//! An order-entry system on a Redis after the TPC-C benchmark: new orders and payments, each under the lock
//! of a warehouse, and enquiries about orders without one.
//!
//! Invariant: what is under a warehouse's lock is written by who holds it only, from what was read under the
//! same lock, with plain SETs: a lock that does not exclude, or a read that is stale, shows in the books.
//!
//! Smaller than the benchmark: customers have names that are numbers, all goods come from the warehouse of
//! the order, nobody waits between transactions, and deliveries and enquiries about stock are left out.

mod books;
mod lock;
mod new_order;
mod order_status;
mod payment;

use crate::transactions::{Application, Client, Failure, Findings, Store};
use books::Books;
use scotfree_stage::workload::Random;
use serde::{Deserialize, Serialize};

const DISTRICTS: u32 = 10;
const CUSTOMERS: u32 = 30;
const ITEMS: u32 = 100;
/// As TPC-C has it: 45 new orders to 43 payments.
const NEW_ORDERS: u64 = 45;
const PAYMENTS: u64 = 43;
/// Of a hundred transactions, those in another warehouse than the client's own.
const ELSEWHERE_PERCENT: u64 = 10;
const STOCK_AT_FIRST: i64 = 1_000_000;

/// The application.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tpcc {
    /// With what all keys begin.
    pub prefix: String,
    /// How many there are.
    pub warehouses: u32,
    /// How locks are given back.
    pub release: Release,
}

/// How a lock is given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Release {
    /// By DEL.
    Delete,
    /// By a script that deletes it if it is still the holder's.
    Script,
}

/// A terminal.
#[derive(Debug)]
pub struct TpccClient {
    tpcc: Tpcc,
    random: Random,
    number: u32,
    books: Books,
    findings: Findings,
    locks_taken: u64,
    locks_refused: u64,
}

/// A customer, by district and number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Customer {
    warehouse: u32,
    district: u32,
    number: u32,
}

impl Tpcc {
    fn of_warehouse(&self, kind: &str, warehouse: u32) -> String {
        format!("{}{kind}:{warehouse}", self.prefix)
    }

    fn of_district(&self, kind: &str, warehouse: u32, district: u32) -> String {
        format!("{}{kind}:{warehouse}:{district}", self.prefix)
    }

    fn of_customer(&self, kind: &str, customer: Customer) -> String {
        let Customer { warehouse, district, number } = customer;
        format!("{}{kind}:{warehouse}:{district}:{number}", self.prefix)
    }

    fn price(&self, item: u32) -> String {
        format!("{}price:{item}", self.prefix)
    }

    fn stock(&self, warehouse: u32, item: u32) -> String {
        format!("{}stock:{warehouse}:{item}", self.prefix)
    }

    fn order(&self, warehouse: u32, district: u32, order: i64) -> String {
        format!("{}order:{warehouse}:{district}:{order}", self.prefix)
    }

    fn line(&self, warehouse: u32, district: u32, order: i64, line: usize) -> String {
        format!("{}line:{warehouse}:{district}:{order}:{line}", self.prefix)
    }
}

impl Application for Tpcc {
    type Client = TpccClient;

    /// Prices and stocks; all other numbers are 0 until they are written.
    fn set_up(&self, store: &mut Store) -> Result<(), Failure> {
        for item in 0..ITEMS {
            store.push(&["SET", &self.price(item), &(100 + 7 * item).to_string()])?;
            for warehouse in 0..self.warehouses {
                store.push(&["SET", &self.stock(warehouse, item), &STOCK_AT_FIRST.to_string()])?;
            }
        }
        Ok(())
    }

    fn client(&self, number: u32, _count: u32, random: Random) -> TpccClient {
        TpccClient {
            tpcc: self.clone(),
            random,
            number,
            books: Books::default(),
            findings: Findings::default(),
            locks_taken: 0,
            locks_refused: 0,
        }
    }

    fn check(&self, clients: &[TpccClient], store: &mut Store) -> Result<Findings, Failure> {
        let (mut books, mut findings) = (Books::default(), Findings::default());
        for client in clients {
            books.add(&client.books);
            findings.add(&client.findings);
        }
        books.compare(self, store, &mut findings)?;
        Ok(findings)
    }
}

impl Client for TpccClient {
    fn update(&mut self, store: &mut Store) -> Result<(), Failure> {
        if self.random.below(NEW_ORDERS + PAYMENTS) < NEW_ORDERS {
            self.new_order(store)
        } else {
            self.pay(store)
        }
    }

    fn read(&mut self, store: &mut Store) -> Result<(), Failure> {
        self.enquire(store)
    }

    fn counts(&self) -> Vec<(&'static str, u64)> {
        // One request for each attempt and one to give it back.
        let lock_requests = 2 * self.locks_taken + self.locks_refused;
        vec![("lock_requests", lock_requests), ("locks_refused", self.locks_refused)]
    }
}

impl TpccClient {
    fn any_customer(&mut self) -> Customer {
        let own = self.number % self.tpcc.warehouses;
        let is_elsewhere = self.random.below(100) < ELSEWHERE_PERCENT;
        let warehouse = if is_elsewhere { self.below(self.tpcc.warehouses) } else { own };
        Customer { warehouse, district: self.below(DISTRICTS), number: self.below(CUSTOMERS) }
    }

    fn below(&mut self, bound: u32) -> u32 {
        self.random.below(u64::from(bound)) as u32
    }
}
