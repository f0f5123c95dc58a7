//! One search: an estimate of every passage in the nearest clusters, then exact values until no other can matter.
//!
//! Invariant: a passage that was not asked for cannot be among the nearest by its own bound; how often that bound is
//! wrong is what `deviations` says.

use std::collections::HashMap;

use crate::code::{Asked, Factors};
use crate::dot;
use crate::scan::Kernel;
use crate::snapshot::Snapshot;

/// What is searched for.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// The embedding of the question, of length one.
    pub question: &'a [f32],
    /// How many passages are looked for.
    pub count: usize,
    /// How many of the nearest clusters are looked through.
    pub probes: usize,
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
    /// Those with the greatest bound first.
    candidates: Vec<Candidate>,
    next: usize,
    exact: HashMap<u32, f32>,
    probed: usize,
}

impl Search {
    /// Estimates all passages of the nearest clusters but those that are gone.
    pub fn new(
        snapshot: &Snapshot,
        wanted: Wanted<'_>,
        kernel: Kernel,
        is_gone: impl Fn(u32) -> bool,
    ) -> Self {
        let nearest = nearest(snapshot, wanted.question, wanted.probes);
        let asked = snapshot.basis().asked(wanted.question);
        let mut scan = Scan { snapshot, asked, wanted, kernel, products: Vec::new() };
        let mut candidates = Vec::new();
        for cluster in &nearest {
            scan.cluster(*cluster, &is_gone, &mut candidates);
        }
        candidates.sort_unstable_by(|left, right| {
            right.most.total_cmp(&left.most).then(left.passage.cmp(&right.passage))
        });
        Self { count: wanted.count, candidates, next: 0, exact: HashMap::new(), probed: nearest.len() }
    }

    /// How many passages were estimated.
    pub fn estimated(&self) -> usize {
        self.candidates.len()
    }

    /// In how many clusters.
    pub fn probed(&self) -> usize {
        self.probed
    }

    /// At most so many passages whose exact values may matter, the likeliest first; none: the search is over.
    pub fn ask(&mut self, most: usize) -> Vec<u32> {
        let bar = self.bar();
        let mut asked = Vec::new();
        while let Some(one) = self.candidates.get(self.next).filter(|_| asked.len() < most) {
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

    /// Exact values: of what was asked for, or of others that are known.
    pub fn give(&mut self, exact: impl IntoIterator<Item = Found>) {
        self.exact.extend(exact.into_iter().map(|one| (one.passage, one.similarity)));
    }

    /// The nearest by exact values.
    pub fn found(&self) -> Vec<Found> {
        first(self.known().collect(), self.count)
    }

    /// The nearest by estimates, and by exact values where those are known.
    pub fn guessed(&self) -> Vec<Found> {
        let estimates = self.candidates.iter().filter(|one| !self.exact.contains_key(&one.passage));
        let estimates = estimates.map(|one| Found { passage: one.passage, similarity: one.estimate });
        first(estimates.chain(self.known()).collect(), self.count)
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

fn first(mut found: Vec<Found>, count: usize) -> Vec<Found> {
    found.sort_unstable_by(|left, right| {
        right.similarity.total_cmp(&left.similarity).then(left.passage.cmp(&right.passage))
    });
    found.truncate(count);
    found
}

/// The clusters whose centroids are nearest, by distance.
fn nearest(snapshot: &Snapshot, question: &[f32], probes: usize) -> Vec<usize> {
    let mut clusters: Vec<(f32, usize)> =
        (0..snapshot.clusters()).map(|cluster| (snapshot.distance(cluster, question), cluster)).collect();
    clusters.sort_unstable_by(|left, right| left.0.total_cmp(&right.0).then(left.1.cmp(&right.1)));
    clusters.into_iter().take(probes).map(|(_, cluster)| cluster).collect()
}

struct Scan<'a> {
    snapshot: &'a Snapshot,
    asked: Asked,
    wanted: Wanted<'a>,
    kernel: Kernel,
    products: Vec<f32>,
}

impl Scan<'_> {
    /// With o = c + r the similarity <o, q> is <c, q> + <r, q>. The code estimates the second term; what it lacks of
    /// <r, c> is stored, so that it errs only by the error's inner product with q - c.
    fn cluster(&mut self, cluster: usize, is_gone: &impl Fn(u32) -> bool, candidates: &mut Vec<Candidate>) {
        let rows = self.snapshot.rows_of(cluster);
        let centroid: Vec<f32> = self.snapshot.centroid(cluster).collect();
        let with = dot(&centroid, self.wanted.question);
        let away = self.snapshot.distance(cluster, self.wanted.question).sqrt();
        let slack = self.wanted.deviations * self.asked.share * away;
        self.asked.products(self.kernel, self.snapshot.codes(rows.clone()), &mut self.products);
        for (row, product) in rows.zip(&self.products) {
            let passage = self.snapshot.passage(row);
            if is_gone(passage) {
                continue;
            }
            let Factors { gain, offset, error } = self.snapshot.factors(row);
            let estimate = with + gain * product + offset;
            candidates.push(Candidate { passage, estimate, most: estimate + slack * error });
        }
    }
}
