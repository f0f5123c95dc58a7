//! One search: an estimate of every passage in the nearest clusters, then exact values until no other can matter.
//!
//! Invariant: a passage that was not asked for cannot be among the nearest by its own bound; how often that bound is
//! wrong is what `deviations` says.

use std::collections::HashMap;

use crate::code::{Asked, Factors, FACTORS};
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

/// Candidates that are sorted when the first is asked for.
const SORTED_FIRST: usize = 256;

#[derive(Debug, Clone, Copy)]
struct Candidate {
    passage: u32,
    estimate: f32,
    /// With what is sure to be no less than its similarity.
    most: f32,
}

/// A search that is under way.
#[derive(Debug)]
pub struct Search {
    count: usize,
    /// The first of them are sorted, those with the greatest bound first; no other has a greater one.
    candidates: Vec<Candidate>,
    sorted: usize,
    next: usize,
    exact: HashMap<u32, f32>,
    probed: usize,
    certain: usize,
}

impl Search {
    /// Estimates all passages of the nearest clusters but those that are gone.
    ///
    /// Of a passage without a code nothing is known but its centroid: it may always matter.
    pub fn new(
        snapshot: &Snapshot,
        wanted: Wanted<'_>,
        kernel: Kernel,
        is_gone: impl Fn(u32) -> bool,
    ) -> Self {
        let nearest = snapshot.nearest(wanted.question, wanted.probes);
        let asked = snapshot.basis().asked(wanted.question);
        let (deviations, products, factors) = (wanted.deviations, Vec::new(), Vec::new());
        let mut scan = Scan { snapshot, asked, deviations, kernel, products, factors };
        let mut candidates = Vec::new();
        let (mut probed, mut certain) = (0, 0);
        let bare_probes = if snapshot.is_all_coded() { 0 } else { wanted.bare_probes };
        let along = snapshot.along(wanted.question, bare_probes);
        for near in &nearest {
            if !snapshot.is_bare(near.cluster) {
                scan.cluster(near, &is_gone, &mut candidates);
            } else if along.contains(&near.cluster) {
                certain += scan.bare_cluster(near, &is_gone, &mut candidates);
            } else {
                continue;
            }
            probed += 1;
        }
        let count = wanted.count;
        Self { count, candidates, sorted: 0, next: 0, exact: HashMap::new(), probed, certain }
    }

    /// How many passages were estimated from their codes.
    pub fn estimated(&self) -> usize {
        self.candidates.len() - self.certain
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
            self.sort_more();
            let Some(one) = self.candidates.get(self.next) else { break };
            if bar.is_some_and(|bar| one.most <= bar) {
                break;
            }
            self.next += 1;
            if !self.exact.contains_key(&one.passage) {
                asked.push(one.passage);
            }
        }
        asked
    }

    /// Sorts as many again as are, if the next is not: a search sees few of them.
    fn sort_more(&mut self) {
        let rest = &mut self.candidates[self.sorted..];
        if self.next < self.sorted || rest.is_empty() {
            return;
        }
        let by_bound = |left: &Candidate, right: &Candidate| {
            right.most.total_cmp(&left.most).then(left.passage.cmp(&right.passage))
        };
        let more = rest.len().min(self.sorted.max(SORTED_FIRST));
        rest.select_nth_unstable_by(more - 1, by_bound);
        rest[..more].sort_unstable_by(by_bound);
        self.sorted += more;
    }

    /// Exact values: of what was asked for, or of others that are known.
    pub fn give(&mut self, exact: impl IntoIterator<Item = Found>) {
        self.exact.extend(exact.into_iter().map(|one| (one.passage, one.similarity)));
    }

    /// The nearest by exact values.
    pub fn found(&self) -> Vec<Found> {
        first(self.known(), self.count)
    }

    /// The nearest by estimates, and by exact values where those are known.
    pub fn guessed(&self) -> Vec<Found> {
        let estimates = self.candidates.iter().filter(|one| !self.exact.contains_key(&one.passage));
        let estimates = estimates.map(|one| Found { passage: one.passage, similarity: one.estimate });
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

/// The first of them by similarity. Those that are not are let go as they come: nearly all of a search.
fn first(found: impl Iterator<Item = Found>, count: usize) -> Vec<Found> {
    let by_similarity = |left: &Found, right: &Found| {
        right.similarity.total_cmp(&left.similarity).then(left.passage.cmp(&right.passage))
    };
    let mut kept: Vec<Found> = Vec::new();
    let mut bar = f32::NEG_INFINITY;
    for one in found {
        if one.similarity < bar {
            continue;
        }
        kept.push(one);
        if count > 0 && kept.len() >= 2 * count.max(SORTED_FIRST) {
            bar = kept.select_nth_unstable_by(count - 1, by_similarity).1.similarity;
            kept.truncate(count);
        }
    }
    kept.sort_unstable_by(by_similarity);
    kept.truncate(count);
    kept
}

struct Scan<'a> {
    snapshot: &'a Snapshot,
    asked: Asked,
    deviations: f32,
    kernel: Kernel,
    products: Vec<f32>,
    factors: Vec<f32>,
}

impl Scan<'_> {
    /// With o = c + r the similarity <o, q> is <c, q> + <r, q>. The code estimates the second term; what it lacks of
    /// <r, c> is stored, so that it errs only by the error's inner product with q - c.
    fn cluster(&mut self, near: &Near, is_gone: &impl Fn(u32) -> bool, candidates: &mut Vec<Candidate>) {
        let (rows, codes) = (self.snapshot.rows_of(near.cluster), self.snapshot.codes_of(near.cluster));
        let slack = self.deviations * self.asked.share * near.distance;
        self.asked.products(self.kernel, self.snapshot.codes(codes.clone()), &mut self.products);
        self.snapshot.factors(codes, &mut self.factors);
        for ((row, product), factors) in rows.zip(&self.products).zip(self.factors.chunks_exact(FACTORS)) {
            let passage = self.snapshot.passage(row);
            if is_gone(passage) {
                continue;
            }
            let Factors { gain, offset, error } = Factors::of(factors);
            let estimate = near.product + gain * product + offset;
            candidates.push(Candidate { passage, estimate, most: estimate + slack * error });
        }
    }

    /// All that is known of such a passage is its centroid, and no bound but that it may be the nearest.
    fn bare_cluster(
        &self,
        near: &Near,
        is_gone: &impl Fn(u32) -> bool,
        candidates: &mut Vec<Candidate>,
    ) -> usize {
        let before = candidates.len();
        let passages = self.snapshot.rows_of(near.cluster).map(|row| self.snapshot.passage(row));
        let candidate = |passage| Candidate { passage, estimate: near.product, most: f32::INFINITY };
        candidates.extend(passages.filter(|passage| !is_gone(*passage)).map(candidate));
        candidates.len() - before
    }
}
