//! What an operation costs, beside what this machine's memory can give: one run, processor time of this thread.
//!
//! `engine_cost [MILLIONS...]`: for so many million items (0.1 and 16 unless told otherwise).

use scotfree_store::{Op, Options, Replies, Seed, Shard};
use std::hint::black_box;

const BATCH: usize = 32;
const KEY_BYTES: usize = 16;
const VALUE_BYTES: usize = 48;
const ROUNDS: usize = 7;

fn main() {
    let asked: Vec<f64> = std::env::args().skip(1).filter_map(|text| text.parse().ok()).collect();
    let millions = if asked.is_empty() { vec![0.1, 16.0] } else { asked };
    for millions in &millions {
        for has_versions in [false, true] {
            measure((millions * 1e6) as usize, has_versions);
        }
    }
}

fn measure(count: usize, has_versions: bool) {
    let options = Options {
        memory_max: count * 140 + (64 << 20),
        has_versions,
        segments_ahead: 32,
        ..Options::with_seed(Seed::fixed(1))
    };
    let mut shard = Shard::new(&options).expect("memory");
    let filled = fill(&mut shard, count);
    let stats = shard.stats();
    let beside = stats.memory_used as f64 / count as f64 - (KEY_BYTES + VALUE_BYTES) as f64;
    println!(
        "{count} items of {KEY_BYTES} + {VALUE_BYTES} bytes, {}",
        if has_versions { "with versions" } else { "without versions" }
    );
    println!(
        "  memory beside key and value: {beside:.1} bytes an item; {} lines of chains for {} buckets",
        stats.overflow_lines, stats.buckets
    );
    println!(
        "  inserted one by one: {:.1} M/s; longest {} us of processor time, {} us by the clock; above 200 us: {} of processor time, {} by the clock; {} segments not ready",
        count as f64 / filled.all_ns as f64 * 1e3,
        filled.longest_cpu_ns / 1000,
        filled.longest_ns / 1000,
        filled.slow_cpu,
        filled.slow,
        stats.late_segment_count,
    );
    let (idle, idle_cpu) = gaps(filled.all_ns);
    println!(
        "  the machine by itself, as long: above 200 us: {idle_cpu} of processor time, {idle} by the clock"
    );
    let mut lines = Lines::new(stats.memory_used);
    let group = shard.calibrate(|shard| {
        let begin = thread_ns();
        batches(shard, count, 1 << 17, 0, 77);
        thread_ns() - begin
    });
    let mut rates = [const { Vec::new() }; 4];
    let mut shares = [const { Vec::new() }; 4];
    for round in 0..ROUNDS as u64 {
        let ops = if count < 1 << 20 { 1 << 21 } else { 1 << 22 };
        rates[0].push(lines.rate(1 << 23, round));
        for (at, sets_of_8) in [(1, 0), (2, 4), (3, 8)] {
            let begin = thread_ns();
            batches(&mut shard, count, ops, sets_of_8, round + 1);
            rates[at].push(ops as f64 / (thread_ns() - begin) as f64 * 1e3);
            // Beside the lines of the same moment: others use this memory as well.
            rates[0].push(lines.rate(1 << 22, round + 7));
            let beside = &rates[0][rates[0].len() - 2..];
            shares[at].push(rates[at][round as usize] / (beside[0] + beside[1]) * 6.0);
        }
    }
    let of_lines = median(&rates[0]);
    println!("  random lines: {of_lines:.1} M/s ({})", spread(&rates[0]));
    for (at, name) in [(1, "GET"), (2, "50:50"), (3, "SET")] {
        let (rates, share) = (&rates[at], median(&shares[at]));
        let rate = median(rates);
        println!(
            "  {name:5} batch {BATCH}: {rate:.1} M/s ({}), {:.1} ns, {share:.2} of lines / 3; groups of {group}",
            spread(rates),
            1e3 / rate,
        );
    }
}

struct Filled {
    all_ns: u64,
    longest_ns: u64,
    longest_cpu_ns: u64,
    slow: usize,
    slow_cpu: usize,
}

/// Inserts one by one and times each by the processor's counter; where that is long, by processor time as well.
fn fill(shard: &mut Shard, count: usize) -> Filled {
    let mut out = Replies::new();
    let mut filled = Filled { all_ns: 0, longest_ns: 0, longest_cpu_ns: 0, slow: 0, slow_cpu: 0 };
    let value = [7; VALUE_BYTES];
    let begin = thread_ns();
    let mut cpu_before = begin;
    for number in 0..count {
        let key = key(number);
        let op = Op::set(&key, &value);
        out.clear();
        let before = std::time::Instant::now();
        shard.run(0, &op, &mut out);
        let ns = before.elapsed().as_nanos() as u64;
        assert_eq!(out.get(0).outcome, scotfree_store::Outcome::Done);
        // Processor time is read every 32 inserts, and after each that seemed long: it includes at most 31 others.
        if ns > 100_000 || number % 32 == 31 {
            let cpu = thread_ns();
            if ns > 100_000 {
                let of_it = (cpu - cpu_before).min(ns);
                filled.longest_cpu_ns = filled.longest_cpu_ns.max(of_it);
                filled.slow_cpu += usize::from(of_it > 200_000);
            }
            cpu_before = cpu;
        }
        filled.longest_ns = filled.longest_ns.max(ns);
        filled.slow += usize::from(ns > 200_000);
    }
    filled.all_ns = thread_ns() - begin;
    filled
}

/// How often a loop that does nothing stands still, within so much processor time.
fn gaps(all_ns: u64) -> (usize, usize) {
    let begin = thread_ns();
    let (mut before, mut cpu_before) = (std::time::Instant::now(), begin);
    let (mut slow, mut slow_cpu) = (0, 0);
    while cpu_before < begin + all_ns {
        for _ in 0..32 {
            let ns = before.elapsed().as_nanos() as u64;
            before = std::time::Instant::now();
            slow += usize::from(ns > 200_000);
            if ns > 200_000 {
                let cpu = thread_ns();
                slow_cpu += usize::from((cpu - cpu_before).min(ns) > 200_000);
                cpu_before = cpu;
            }
        }
        cpu_before = thread_ns();
    }
    (slow, slow_cpu)
}

/// Runs batches over keys at random; of eight operations `sets_of_8` are sets.
fn batches(shard: &mut Shard, count: usize, ops: usize, sets_of_8: u64, seed: u64) {
    let mut out = Replies::new();
    let value = [9; VALUE_BYTES];
    let mut state = seed;
    let mut keys = [[0; KEY_BYTES]; BATCH];
    let mut sets = [false; BATCH];
    for _ in 0..ops / BATCH {
        for (key_of, is_set) in keys.iter_mut().zip(&mut sets) {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            let random = state >> 32;
            *key_of = key(((random * count as u64) >> 32) as usize);
            *is_set = (state >> 20 & 7) < sets_of_8;
        }
        let ops: [Op<'_>; BATCH] = std::array::from_fn(|index| {
            if sets[index] {
                Op::set(&keys[index], &value)
            } else {
                Op::get(&keys[index])
            }
        });
        out.clear();
        shard.run_batch(1, &ops, &mut out);
        black_box(&out);
    }
}

/// Cheap to make, so that the making is not what is measured.
fn key(number: usize) -> [u8; KEY_BYTES] {
    let number = number as u64;
    let mut key = [0; KEY_BYTES];
    key[..8].copy_from_slice(&number.to_le_bytes());
    key[8..].copy_from_slice(&(!number).to_be_bytes());
    key
}

/// As much memory as the store has, read line by line at random, without dependence from one to the next.
struct Lines {
    memory: Vec<u64>,
    first: usize,
}

const AHEAD: usize = 24;

impl Lines {
    fn new(bytes: usize) -> Lines {
        let mut memory = Vec::<u64>::with_capacity(bytes / 8 + (2 << 20) / 8);
        let first = memory.as_ptr().align_offset(2 << 20);
        // Huge pages, as the store has them.
        advise(memory.as_ptr() as usize + first * 8, bytes / (2 << 20) * (2 << 20));
        memory.resize(first + bytes / 8, 1);
        Lines { memory, first }
    }

    fn rate(&mut self, count: usize, seed: u64) -> f64 {
        let lines = (self.memory.len() - self.first) as u64 / 8;
        let next = |state: &mut u64| {
            *state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            self.first + ((((*state >> 32) * lines) >> 32) * 8) as usize
        };
        let mut ring = [self.first; AHEAD];
        let (mut state, mut sum, mut at) = (seed, 0u64, 0);
        let begin = thread_ns();
        for _ in 0..count {
            sum += self.memory[ring[at]];
            ring[at] = next(&mut state);
            prefetch(&self.memory[ring[at]]);
            at = if at + 1 == AHEAD { 0 } else { at + 1 };
        }
        black_box(sum);
        count as f64 / (thread_ns() - begin) as f64 * 1e3
    }
}

#[allow(unsafe_code)]
fn prefetch(at: &u64) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch never faults.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(std::ptr::from_ref(at).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

#[allow(unsafe_code)]
fn advise(start: usize, bytes: usize) {
    // SAFETY: advice about memory of ours, which changes no content.
    unsafe { libc::madvise(start as *mut libc::c_void, bytes, libc::MADV_HUGEPAGE) };
}

/// Processor time of this thread.
#[allow(unsafe_code)]
fn thread_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the system writes the time into `time`, which is live.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn median(rates: &[f64]) -> f64 {
    let mut sorted = rates.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

fn spread(rates: &[f64]) -> String {
    let least = rates.iter().copied().fold(f64::INFINITY, f64::min);
    format!("{least:.1} to {:.1}", rates.iter().copied().fold(0.0, f64::max))
}
