//! The cache's words for the application of persist's world.

use remedy_cache::{CacheFault, Language, Limits, Names, Planted, ReadCache};
use remedy_persist_world::app::{App, Op, Reply, WriteToken};
use scotfree_core::Nanos;
use scotfree_device::{Function, Maker, Settings};
use scotfree_wire::ObjectNote;

/// The application of persist's world.
#[derive(Debug)]
struct Registers;

const SET: u8 = 1;
const GET: u8 = 4;
const SET_FOR: u8 = 7;

impl Language for Registers {
    /// Sessions' histories are judged whole.
    fn caller(&self, _payload: &[u8]) -> Option<u32> {
        None
    }

    fn read(&self, payload: &[u8], key: &mut Vec<u8>) -> bool {
        key.extend(payload.get(1));
        payload.first() == Some(&GET)
    }

    fn overwrite(&self, payload: &[u8], key: &mut Vec<u8>, value: &mut Vec<u8>) -> bool {
        let (Some([SET, cell]), Some(token)) = (payload.first_chunk(), payload.get(4..12)) else {
            return false;
        };
        let token = WriteToken(u64::from_le_bytes(token.try_into().expect("eight bytes")));
        let mut app = App::new(1);
        app.apply(&Op::Set { cell: 0, token });
        app.look(&Op::Get { cell: 0 }).encode(48, value);
        key.push(*cell);
        true
    }

    fn names(&self, payload: &[u8]) -> Names {
        match payload.first() {
            Some(&(SET | SET_FOR)) => Names::All,
            _ => Names::Some,
        }
    }

    /// The servers of this world vouch for every read of one cell.
    fn lives(&self, reply: &[u8], note: Option<ObjectNote>, value: &mut Vec<u8>) -> Option<Nanos> {
        value.extend_from_slice(reply);
        Reply::decode(false, reply)?;
        Some(match note?.remaining_ms {
            u64::MAX => Nanos::MAX,
            remaining_ms => Nanos::from_millis(remaining_ms),
        })
    }
}

fn make(planted: Planted) -> Box<dyn Function> {
    let limits = Limits { admit_reads: 0, bucket_count: 8, bytes_max: 4_000, ..Limits::default() };
    Box::new(ReadCache::new(limits, Box::new(Registers), planted))
}

/// The cache as it is to be.
pub const CACHE: Maker = Maker::plain("cache", |_| make(Planted::NONE));

fn with_fault<const FAULT: usize>(_settings: &Settings) -> Box<dyn Function> {
    make(Planted::some(CacheFault::ALL[FAULT]))
}

type Make = fn(&Settings) -> Box<dyn Function>;

/// The cache with each rule switched off.
pub const FAULTY: [Make; CacheFault::ALL.len()] = [
    with_fault::<0>,
    with_fault::<1>,
    with_fault::<2>,
    with_fault::<3>,
    with_fault::<4>,
    with_fault::<5>,
    with_fault::<6>,
    with_fault::<7>,
    with_fault::<8>,
    with_fault::<9>,
    with_fault::<10>,
    with_fault::<11>,
    with_fault::<12>,
    with_fault::<13>,
    with_fault::<14>,
    with_fault::<15>,
];
