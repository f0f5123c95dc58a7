//! One search: an estimate of every passage in the nearest clusters, then exact values until no other can matter.
//!
//! Invariant: a passage that was not asked for cannot be among the nearest by its own bound; how often that bound is
//! wrong is what `deviations` says.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

use crate::code::{Asked, Factors, FACTORS};
use crate::passage_set::PassageSet;
use crate::rows::{RowError, Rows};
use crate::scan::Kernel;
use crate::snapshot::{Near, Snapshot};

/// What is searched for.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// The embedding of the question, of length one.
    pub question: &'a [f32],
    /// How many passages are looked for.
    pub count: usize,
    /// How many of the nearest clusters are looked through.
    pub probes: usize,
    /// And of bare ones so many, those that lie most along the question: of each of their passages the exact value is
    /// asked for.
    pub bare_probes: usize,
    /// How many standard errors of an estimate its bound is away.
    pub deviations: f32,
}

/// A passage and its inner product with the question: exact, or an estimate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Found {
    /// Which.
    pub passage: u32,
    /// With the question.
    pub similarity: f32,
}

/// Candidates that a search keeps at first, and how many times more each time that it looks for more.
const KEPT_FIRST: usize = 1_024;
const KEPT_MORE: usize = 8;

/// A passage, and what is sure to be no less than its similarity.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    bound: f32,
    passage: u32,
}

impl Candidate {
    /// The greatest bound first; of equal ones the first passage.
    fn order(self, other: Self) -> Ordering {
        other.bound.total_cmp(&self.bound).then(self.passage.cmp(&other.passage))
    }
}

/// A search that is under way.
#[derive(Debug)]
pub struct Search {
    scan: Scan,
    count: usize,
    /// Those with the greatest bounds, in their order; others are estimated again when they are needed, which hardly
    /// any search does.
    candidates: Vec<Candidate>,
    /// How many there may be.
    kept: usize,
    next: usize,
    exact: HashMap<u32, f32>,
    probed: usize,
    estimated: usize,
    certain: usize,
}

/// What `Search::refine` asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Refined {
    /// Passages that rows gave.
    pub loaded: Vec<u32>,
    /// Those of the last time that have no row: their exact values are to be given.
    pub missing: Vec<u32>,
}

impl Search {
    /// Estimates all passages of the nearest clusters but those that are gone.
    ///
    /// Of a passage without a code nothing is known but its centroid: it may always matter.
    pub fn new(snapshot: &Arc<Snapshot>, wanted: Wanted<'_>, kernel: Kernel, gone: Arc<PassageSet>) -> Self {
        let scan = Scan::new(snapshot, wanted, kernel, gone);
        let (certain, probed, passages) = (scan.certain(), scan.clusters.len(), scan.passages());
        let kept = wanted.count.saturating_mul(2).min(passages).max(KEPT_FIRST);
        let candidates = scan.greatest(kept);
        let estimated = passages - certain;
        let (count, exact) = (wanted.count, HashMap::new());
        Self { scan, count, candidates, kept, next: 0, exact, probed, estimated, certain }
    }

    /// How many passages were estimated from their codes.
    pub fn estimated(&self) -> usize {
        self.estimated
    }

    /// How many have no codes: they are the first to be asked for, and none is left out.
    pub fn certain(&self) -> usize {
        self.certain
    }

    /// In how many clusters.
    pub fn probed(&self) -> usize {
        self.probed
    }

    /// At most so many passages whose exact values may matter, the likeliest first; none: the search is over.
    pub fn ask(&mut self, most: usize) -> Vec<u32> {
        let bar = self.bar();
        let mut asked = Vec::new();
        while asked.len() < most {
            self.keep(self.next + 1);
            let Some(one) = self.candidates.get(self.next) else { break };
            if bar.is_some_and(|bar| one.bound <= bar) {
                break;
            }
            self.next += 1;
            if !self.exact.contains_key(&one.passage) {
                asked.push(one.passage);
            }
        }
        asked
    }

    /// Has so many candidates at hand, if there are.
    fn keep(&mut self, count: usize) {
        if count > self.candidates.len() && self.kept < self.estimated + self.certain {
            let all = self.estimated + self.certain;
            self.kept = count.max(KEPT_MORE * self.kept).min(all);
            self.candidates = self.scan.greatest(self.kept);
        }
    }

    /// Exact values: of what was asked for, or of others that are known.
    pub fn give(&mut self, exact: impl IntoIterator<Item = Found>) {
        self.exact.extend(exact.into_iter().map(|one| (one.passage, one.similarity)));
    }

    /// Gives exact values out of rows, to `most` passages each time, until no other can be among the nearest or one
    /// that may be has no row.
    pub fn refine(&mut self, rows: &Rows<'_>, question: &[f32], most: usize) -> Result<Refined, RowError> {
        let mut refined = Refined::default();
        let mut row = rows.buffer();
        while refined.missing.is_empty() {
            let asked = self.ask(most);
            if asked.is_empty() {
                break;
            }
            for passage in asked {
                match rows.product(passage, question, &mut row)? {
                    Some(similarity) => {
                        self.exact.insert(passage, similarity);
                        refined.loaded.push(passage);
                    }
                    None => refined.missing.push(passage),
                }
            }
        }
        Ok(refined)
    }

    /// The nearest by exact values.
    pub fn found(&self) -> Vec<Found> {
        first(self.known(), self.count)
    }

    /// The nearest by their bounds, which are estimates where those are no standard errors away, and by exact values
    /// where they are known.
    pub fn guessed(&mut self) -> Vec<Found> {
        self.keep(self.count.saturating_add(self.exact.len()));
        let estimates = self.candidates.iter().filter(|one| !self.exact.contains_key(&one.passage));
        let estimates = estimates.map(|one| Found { passage: one.passage, similarity: one.bound });
        first(estimates.chain(self.known()), self.count)
    }

    fn known(&self) -> impl Iterator<Item = Found> + '_ {
        self.exact.iter().map(|(passage, similarity)| Found { passage: *passage, similarity: *similarity })
    }

    /// What a passage must exceed to be found; nothing, while there are fewer than are looked for.
    fn bar(&self) -> Option<f32> {
        let mut values: Vec<f32> = self.exact.values().copied().collect();
        let place = self.count.checked_sub(1)?;
        (place < values.len())
            .then(|| *values.select_nth_unstable_by(place, |left, right| right.total_cmp(left)).1)
    }
}

/// The first of them by similarity.
fn first(found: impl Iterator<Item = Found>, count: usize) -> Vec<Found> {
    let mut kept: Vec<Found> = found.collect();
    kept.sort_unstable_by(|left, right| {
        right.similarity.total_cmp(&left.similarity).then(left.passage.cmp(&right.passage))
    });
    kept.truncate(count);
    kept
}

/// What is estimated, and how.
#[derive(Debug)]
struct Scan {
    snapshot: Arc<Snapshot>,
    asked: Asked,
    deviations: f32,
    kernel: Kernel,
    /// Those that are looked through, the nearest first.
    clusters: Vec<Near>,
    /// Passages that are not to be found.
    gone: Arc<PassageSet>,
}

/// What a cluster's estimates are made of, to be filled again for the next one.
#[derive(Debug, Default)]
struct Room {
    products: Vec<f32>,
    factors: Vec<f32>,
}

impl Scan {
    fn new(snapshot: &Arc<Snapshot>, wanted: Wanted<'_>, kernel: Kernel, gone: Arc<PassageSet>) -> Self {
        let bare_probes = if snapshot.is_all_coded() { 0 } else { wanted.bare_probes };
        let along = snapshot.along(wanted.question, bare_probes);
        let mut clusters = snapshot.nearest(wanted.question, wanted.probes);
        clusters.retain(|near| !snapshot.is_bare(near.cluster) || along.contains(&near.cluster));
        let (snapshot, asked) = (Arc::clone(snapshot), snapshot.basis().asked(wanted.question));
        Self { snapshot, asked, deviations: wanted.deviations, kernel, clusters, gone }
    }

    /// How many passages there are to be found.
    fn passages(&self) -> usize {
        self.clusters.iter().map(|near| self.count(near)).sum()
    }

    /// And of them those without codes.
    fn certain(&self) -> usize {
        self.clusters
            .iter()
            .filter(|near| self.snapshot.is_bare(near.cluster))
            .map(|near| self.count(near))
            .sum()
    }

    fn count(&self, near: &Near) -> usize {
        let rows = self.snapshot.rows_of(near.cluster);
        if self.gone.is_empty() {
            return rows.len();
        }
        rows.filter(|row| !self.gone.contains(self.snapshot.passage(*row))).count()
    }

    /// So many candidates with the greatest bounds, in their order.
    fn greatest(&self, count: usize) -> Vec<Candidate> {
        let (mut room, mut bounds) = (Room::default(), Vec::new());
        let mut kept = Kept { count, candidates: Vec::with_capacity(2 * count), bar: f32::NEG_INFINITY };
        for near in &self.clusters {
            bounds.clear();
            let rows = self.snapshot.rows_of(near.cluster);
            if self.snapshot.is_bare(near.cluster) {
                // All that is known of such a passage is its centroid, and no bound but that it may be the nearest.
                bounds.resize(rows.len(), f32::INFINITY);
            } else {
                self.bounds(near, &mut room, &mut bounds);
            }
            for (part, bounds) in rows.step_by(AT_ONCE).zip(bounds.chunks(AT_ONCE)) {
                // Counted and not looked for, which wide registers do; most parts have none.
                if bounds.iter().map(|bound| u32::from(*bound >= kept.bar)).sum::<u32>() == 0 {
                    continue;
                }
                for (row, bound) in (part..).zip(bounds) {
                    let passage = self.snapshot.passage(row);
                    if *bound >= kept.bar && (self.gone.is_empty() || !self.gone.contains(passage)) {
                        kept.push(Candidate { bound: *bound, passage });
                    }
                }
            }
        }
        kept.ordered()
    }

    /// With o = c + r the similarity <o, q> is <c, q> + <r, q>. The code estimates the second term; what it lacks of
    /// <r, c> is stored, so that it errs only by the error's inner product with q - c.
    fn bounds(&self, near: &Near, room: &mut Room, bounds: &mut Vec<f32>) {
        let codes = self.snapshot.codes_of(near.cluster);
        let slack = self.deviations * self.asked.share * near.distance;
        self.asked.products(self.kernel, self.snapshot.codes(codes.clone()), &mut room.products);
        self.snapshot.factors(codes, &mut room.factors);
        let bound = |(product, factors): (&f32, &[f32])| {
            let Factors { gain, offset, error } = Factors::of(factors);
            near.product + gain * product + offset + slack * error
        };
        bounds.extend(room.products.iter().zip(room.factors.chunks_exact(FACTORS)).map(bound));
    }
}

/// Bounds that are compared together.
const AT_ONCE: usize = 64;

/// The greatest so far; those that are not are let go as they come: nearly all of a search.
#[derive(Debug)]
struct Kept {
    count: usize,
    candidates: Vec<Candidate>,
    /// What is less is none of them.
    bar: f32,
}

impl Kept {
    fn push(&mut self, one: Candidate) {
        self.candidates.push(one);
        if self.candidates.len() == 2 * self.count {
            self.bar = self
                .candidates
                .select_nth_unstable_by(self.count - 1, |left, right| left.order(*right))
                .1
                .bound;
            self.candidates.truncate(self.count);
        }
    }

    fn ordered(mut self) -> Vec<Candidate> {
        self.candidates.sort_unstable_by(|left, right| left.order(*right));
        self.candidates.truncate(self.count);
        self.candidates
    }
}
