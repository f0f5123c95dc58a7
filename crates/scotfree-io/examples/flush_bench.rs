//! How long content of each size takes out of the processor: through the cache and flushed, with each
//! instruction that this processor has, or streamed past the cache.
//!
//! Invariant: the ways take turns within a round, on the same lines of a region that no cache holds;
//! medians of five repetitions and their spread are printed, one line per size. Expected: flushing costs
//! one read of the line from memory and one write, streaming the write alone, so streaming wins from
//! some lines on; a fence costs both the same.
//!
//! Usage: `flush_bench [REGION_MIB]`. Without optimisation, or under a test runner's load, the figures
//! mean nothing; on memory that is not persistent they are those of its caches and its bus.

use scotfree_io::now_monotonic;
use scotfree_io::pmem::Flush;
use std::error::Error;

const REPETITIONS: usize = 5;
const ROUNDS: usize = 400;
/// So many copies are timed together: one alone is shorter than a look at the clock.
const BATCH: usize = 16;
const PAGE_BYTES: usize = 4_096;
const SIZES: [usize; 11] = [64, 128, 256, 384, 512, 768, 1_024, 1_536, 2_048, 4_000, 65_536];

fn main() -> Result<(), Box<dyn Error>> {
    let region_mib = std::env::args().nth(1).map_or(Ok(128), |text| text.parse::<usize>())?;
    let ways = ways();
    if ways.is_empty() {
        return Err("this processor announces no flush instruction".into());
    }
    let mut region = vec![1_u8; region_mib << 20];
    let names: Vec<String> = ways.iter().map(|(name, _)| format!("{name:>26}")).collect();
    println!("{:>6} {}   ns, median [spread of {REPETITIONS}]", "bytes", names.join(" "));
    for size in SIZES {
        let mut medians = vec![Vec::new(); ways.len()];
        for _ in 0..REPETITIONS {
            let one = repetition(&mut region, &ways, size);
            medians.iter_mut().zip(one).for_each(|(all, one)| all.push(one));
        }
        let cells: Vec<String> = medians.iter_mut().map(|all| cell(all)).collect();
        println!("{size:>6} {}", cells.join(" "));
    }
    Ok(())
}

/// Every way, with its name. Those that flush copy as the plain version does.
fn ways() -> Vec<(String, Flush)> {
    let all = Flush::all();
    let best = all.first().map(|flush| ("streamed".to_owned(), flush.streaming_from(0)));
    all.iter()
        .map(|flush| (flush.instruction().to_string(), flush.streaming_from(usize::MAX)))
        .chain(best)
        .collect()
}

/// The median time of one copy and its fence, for each way.
fn repetition(region: &mut [u8], ways: &[(String, Flush)], size: usize) -> Vec<f64> {
    let content = vec![7; size];
    // As in a log: content begins 32 bytes behind the beginning of a page.
    let place_bytes = (size + 32).next_multiple_of(PAGE_BYTES);
    let place_count = region.len() / place_bytes;
    let mut samples = vec![Vec::with_capacity(ROUNDS); ways.len()];
    let mut place = 0;
    for _ in 0..ROUNDS {
        for ((_, flush), samples) in ways.iter().zip(&mut samples) {
            let begin = now_monotonic();
            for _ in 0..BATCH {
                place = (place + 1) % place_count;
                let start = place * place_bytes + 32;
                flush.copy(&mut region[start..start + size], &content);
                flush.fence();
            }
            samples.push(now_monotonic().since(begin).0 as f64 / BATCH as f64);
        }
    }
    samples.iter_mut().map(|samples| median(samples)).collect()
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn cell(medians: &mut [f64]) -> String {
    let middle = median(medians);
    format!("{middle:>8.0} [{:>6.0} ..{:>6.0}]", medians[0], medians[medians.len() - 1])
}
