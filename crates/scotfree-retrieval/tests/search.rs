//! An index of drawn embeddings, searched: what is found is what looking at all of them finds.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use scotfree_retrieval::{
    merge, write, Axis, Basis, Clusters, Embedded, Found, Kernel, PassageSet, Rows, Search, Snapshot,
    SnapshotError, Wanted, Writer, KERNELS,
};

const DIMENSIONS: usize = 128;
const CLUSTERS: usize = 12;
const EACH: usize = 60;
const COUNT: usize = 10;
/// At which hardly any bound is wrong.
const SAFE: f32 = 4.0;
const MODEL: [u8; 32] = [7; 32];

/// Embeddings around centroids, as texts' are: the same every time.
struct Drawn {
    state: u64,
}

impl Drawn {
    fn value(&mut self) -> f32 {
        // The sum of uniform values is nearly normal.
        (0..12).map(|_| self.uniform()).sum::<f32>() - 6.0
    }

    fn uniform(&mut self) -> f32 {
        self.state =
            self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 40) as f32 / (1_u32 << 24) as f32
    }

    fn unit(&mut self, around: &[f32], spread: f32) -> Vec<f32> {
        let vector: Vec<f32> = around.iter().map(|value| value + spread * self.value()).collect();
        let length = vector.iter().map(|value| value * value).sum::<f32>().sqrt();
        vector.into_iter().map(|value| value / length).collect()
    }
}

/// Every dimension is an axis; residuals of length one spread evenly over them.
fn basis(depth: u32) -> Basis {
    let variance = 1.0 / DIMENSIONS as f32;
    // Of a normal value: the best step, and the mean square of the error that it leaves.
    let (step, error) = if depth == 1 { (1.596, 0.363) } else { (0.335, 0.0115) };
    let axis = Axis { step: variance.sqrt() * step, error: variance * error, depth };
    let mut directions = vec![0.0; DIMENSIONS * DIMENSIONS];
    (0..DIMENSIONS).for_each(|at| directions[at * DIMENSIONS + at] = 1.0);
    Basis { dimensions: DIMENSIONS, directions, axes: vec![axis; DIMENSIONS], rest: 0.0 }
}

struct Fixture {
    centroids: Vec<f32>,
    starts: Vec<u32>,
    embeddings: Vec<f32>,
    passages: Vec<u32>,
    rows: Vec<u32>,
}

impl Fixture {
    fn new() -> Self {
        let mut drawn = Drawn { state: 11 };
        let (mut centroids, mut embeddings) = (Vec::new(), Vec::new());
        for _ in 0..CLUSTERS {
            let centroid = drawn.unit(&[0.0; DIMENSIONS], 1.0);
            (0..EACH).for_each(|_| embeddings.extend(drawn.unit(&centroid, 0.07)));
            centroids.extend(centroid);
        }
        let count = (CLUSTERS * EACH) as u32;
        Self {
            centroids,
            starts: (0..=CLUSTERS).map(|cluster| (cluster * EACH) as u32).collect(),
            embeddings,
            passages: (0..count).map(|row| 1_000 + row).collect(),
            rows: (0..count).collect(),
        }
    }

    fn clusters(&self) -> Clusters<'_> {
        Clusters {
            centroids: &self.centroids,
            starts: &self.starts,
            rows: &self.rows,
            passages: &self.passages,
        }
    }

    fn written(&self, path: &Path, depth: u32) -> Arc<Snapshot> {
        write(path, &basis(depth), MODEL, self.clusters(), &self.embeddings).expect("it is written");
        Arc::new(Snapshot::open(path).expect("it is opened"))
    }

    fn embedding(&self, passage: u32) -> &[f32] {
        &self.embeddings[(passage - 1_000) as usize * DIMENSIONS..][..DIMENSIONS]
    }

    fn similarity(&self, passage: u32, question: &[f32]) -> f32 {
        self.embedding(passage).iter().zip(question).map(|(value, of)| value * of).sum()
    }

    /// The nearest of all.
    fn flat(&self, question: &[f32]) -> Vec<u32> {
        let mut all = self.passages.clone();
        all.sort_by(|left, right| {
            self.similarity(*right, question).total_cmp(&self.similarity(*left, question))
        });
        all.truncate(COUNT);
        all
    }

    fn questions(&self) -> Vec<Vec<f32>> {
        let mut drawn = Drawn { state: 5 };
        (0..20).map(|at| drawn.unit(&self.embeddings[at * 31 * DIMENSIONS..][..DIMENSIONS], 0.05)).collect()
    }

    /// Searches to the end; what was found, and how many exact values that took.
    fn search(&self, snapshot: &Arc<Snapshot>, question: &[f32], deviations: f32) -> (Vec<u32>, usize) {
        let wanted = Wanted { question, count: COUNT, probes: CLUSTERS, bare_probes: CLUSTERS, deviations };
        let mut search = Search::new(snapshot, wanted, Kernel::best(), without(&[]));
        let mut asked = 0;
        loop {
            let batch = search.ask(8);
            if batch.is_empty() {
                return (passages(&search.found()), asked);
            }
            asked += batch.len();
            search.give(batch.into_iter().map(|passage| self.exact(passage, question)));
        }
    }

    fn exact(&self, passage: u32, question: &[f32]) -> Found {
        Found { passage, similarity: self.similarity(passage, question) }
    }
}

const NOTHING: Embedded<'_> = Embedded { embeddings: &[], passages: &[] };

fn without(passages: &[u32]) -> Arc<PassageSet> {
    Arc::new(passages.iter().copied().collect())
}

fn no_cluster(_: usize) -> bool {
    false
}

fn cluster_of(passage: u32) -> usize {
    (passage - 1_000) as usize / EACH
}

fn passages(found: &[Found]) -> Vec<u32> {
    found.iter().map(|one| one.passage).collect()
}

/// How many of the nearest are found, of all that are looked for.
fn recall(fixture: &Fixture, found: impl Fn(&[f32]) -> Vec<u32>) -> f64 {
    let questions = fixture.questions();
    let hits: usize = questions
        .iter()
        .map(|question| {
            let nearest: HashSet<u32> = fixture.flat(question).into_iter().collect();
            found(question).iter().filter(|passage| nearest.contains(passage)).count()
        })
        .sum();
    hits as f64 / (questions.len() * COUNT) as f64
}

#[test]
fn the_search_finds_what_looking_at_all_finds_and_asks_for_few() {
    let (fixture, folder) = (Fixture::new(), tempfile::tempdir().expect("a folder"));
    let snapshot = fixture.written(&folder.path().join("index"), 1);
    let asked = std::cell::Cell::new(0);
    let found = recall(&fixture, |question| {
        let (found, count) = fixture.search(&snapshot, question, SAFE);
        asked.set(asked.get() + count);
        found
    });
    assert!(found >= 0.999, "{found}");
    let share = asked.get() as f64 / (20 * CLUSTERS * EACH) as f64;
    assert!(share < 0.3, "{share} of all passages were asked for");
}

#[test]
fn a_planted_bound_of_nothing_misses_some() {
    let (fixture, folder) = (Fixture::new(), tempfile::tempdir().expect("a folder"));
    let snapshot = fixture.written(&folder.path().join("index"), 1);
    let found = recall(&fixture, |question| fixture.search(&snapshot, question, 0.0).0);
    assert!(found < 0.99, "a search that trusts its estimates found {found}");
}

#[test]
fn four_bits_find_nearly_all_without_an_exact_value() {
    let (fixture, folder) = (Fixture::new(), tempfile::tempdir().expect("a folder"));
    let guess = |snapshot: &Arc<Snapshot>, question: &[f32]| {
        let wanted = Wanted { question, count: COUNT, probes: CLUSTERS, bare_probes: 0, deviations: SAFE };
        passages(&Search::new(snapshot, wanted, Kernel::best(), without(&[])).guessed())
    };
    let four = fixture.written(&folder.path().join("four"), 4);
    let one = fixture.written(&folder.path().join("one"), 1);
    let (four, one) = (recall(&fixture, |of| guess(&four, of)), recall(&fixture, |of| guess(&one, of)));
    assert!(four > 0.93 && one < four - 0.1, "four bits {four}, one bit {one}");
}

#[test]
fn what_is_gone_is_not_found_and_what_is_known_is_not_asked_for() {
    let (fixture, folder) = (Fixture::new(), tempfile::tempdir().expect("a folder"));
    let snapshot = fixture.written(&folder.path().join("index"), 1);
    let question = &fixture.questions()[0];
    let nearest = fixture.flat(question);
    let wanted = Wanted { question, count: COUNT, probes: CLUSTERS, bare_probes: 0, deviations: SAFE };
    let mut search = Search::new(&snapshot, wanted, Kernel::best(), without(&[nearest[0]]));
    assert_eq!(search.estimated(), CLUSTERS * EACH - 1);
    search.give(nearest[1..].iter().map(|passage| fixture.exact(*passage, question)));
    let mut asked = Vec::new();
    loop {
        // One at a time: what is known already must not end it.
        let batch = search.ask(1);
        if batch.is_empty() {
            break;
        }
        search.give(batch.iter().map(|passage| fixture.exact(*passage, question)));
        asked.extend(batch);
    }
    assert!(!asked.is_empty() && asked.iter().all(|passage| !nearest.contains(passage)), "{asked:?}");
    assert_eq!(passages(&search.found())[..COUNT - 1], nearest[1..]);
}

#[test]
fn clusters_beyond_the_probes_are_not_looked_at() {
    let (fixture, folder) = (Fixture::new(), tempfile::tempdir().expect("a folder"));
    let snapshot = fixture.written(&folder.path().join("index"), 1);
    let question = &fixture.embeddings[..DIMENSIONS];
    let wanted = Wanted { question, count: COUNT, probes: 1, bare_probes: 0, deviations: SAFE };
    let mut search = Search::new(&snapshot, wanted, Kernel::best(), without(&[]));
    assert_eq!((search.probed(), search.estimated()), (1, EACH));
    assert!(passages(&search.guessed()).iter().all(|passage| *passage < 1_000 + EACH as u32));
}

#[test]
fn every_kernel_guesses_the_same() {
    let (fixture, folder) = (Fixture::new(), tempfile::tempdir().expect("a folder"));
    let snapshot = fixture.written(&folder.path().join("index"), 4);
    let question = &fixture.questions()[1];
    let guess = |kernel| {
        let wanted = Wanted { question, count: 3, probes: CLUSTERS, bare_probes: 0, deviations: SAFE };
        passages(&Search::new(&snapshot, wanted, kernel, without(&[])).guessed())
    };
    for kernel in KERNELS.into_iter().filter(|kernel| kernel.is_here()) {
        assert_eq!(guess(kernel), guess(Kernel::Plain), "{kernel:?}");
    }
}

#[test]
fn a_damaged_or_foreign_file_is_refused_with_the_reason() {
    let (fixture, folder) = (Fixture::new(), tempfile::tempdir().expect("a folder"));
    let path = folder.path().join("index");
    let rows = fixture.written(&path, 1).rows();
    assert_eq!(rows, CLUSTERS * EACH);
    let whole = std::fs::read(&path).expect("it is there");
    let refusal = |bytes: &[u8]| {
        let other = folder.path().join("other");
        std::fs::write(&other, bytes).expect("it is written");
        match Snapshot::open(&other).expect_err("it is refused") {
            SnapshotError::Refused { reason, .. } => reason,
            other => panic!("{other}"),
        }
    };
    assert!(refusal(b"").contains("no index"));
    assert!(refusal(b"PK\x03\x04 something else that is long enough to hold a header of an index, and a little more than that, to be sure of it....").contains("no index"));
    assert!(refusal(&whole[..whole.len() - 1]).contains("do not make its"));
    for at in (0..whole.len()).step_by(97).chain(0..80).chain(128..140) {
        let mut damaged = whole.clone();
        damaged[at] ^= 1;
        refusal(&damaged);
    }
    assert!(matches!(Snapshot::open(&folder.path().join("absent")), Err(SnapshotError::Io { .. })));
    assert!(matches!(Snapshot::open(folder.path()), Err(SnapshotError::Io { .. })));
}

#[test]
fn what_is_no_index_is_not_written_and_leaves_the_old_one() {
    let (fixture, folder) = (Fixture::new(), tempfile::tempdir().expect("a folder"));
    let path = folder.path().join("index");
    fixture.written(&path, 1);
    let before = std::fs::read(&path).expect("it is there");
    let refused = |basis: &Basis, clusters: Clusters<'_>, embeddings: &[f32]| {
        write(&path, basis, MODEL, clusters, embeddings).expect_err("it is refused").to_string()
    };
    let basis = basis(1);
    let mut long = fixture.embeddings.clone();
    long[5] += 1.0;
    assert!(refused(&basis, fixture.clusters(), &long).contains("embedding 0 has not the length 1"));
    let twice = vec![0; fixture.rows.len()];
    let clusters = Clusters { rows: &twice, ..fixture.clusters() };
    assert!(refused(&basis, clusters, &fixture.embeddings).contains("in two rows"));
    let clusters = Clusters {
        starts: &[0, 5, 3],
        centroids: &fixture.centroids[..2 * DIMENSIONS],
        ..fixture.clusters()
    };
    assert!(refused(&basis, clusters, &fixture.embeddings).contains("do not part"));
    let odd = Basis { rest: f32::NAN, ..basis };
    assert!(refused(&odd, fixture.clusters(), &fixture.embeddings).contains("across its axes"));
    assert_eq!(std::fs::read(&path).expect("it is there"), before);
}

#[test]
fn a_merged_index_is_one_that_was_written_so() {
    let (fixture, folder) = (Fixture::new(), tempfile::tempdir().expect("a folder"));
    let old = fixture.written(&folder.path().join("old"), 1);
    let is_gone = |passage: u32| passage.is_multiple_of(3);
    let path = folder.path().join("new");
    // What is taken out and put in again is coded as it was.
    let back: Vec<u32> = fixture.passages.iter().copied().filter(|passage| is_gone(*passage)).collect();
    let embeddings: Vec<f32> = back.iter().flat_map(|one| fixture.embedding(*one)).copied().collect();
    let again = Embedded { embeddings: &embeddings, passages: &back };
    merge(&path, &old, is_gone, no_cluster, again).expect("it is merged");
    let new = Arc::new(Snapshot::open(&path).expect("it is opened"));
    assert_eq!(new.rows(), old.rows());
    for question in fixture.questions() {
        assert_eq!(fixture.search(&new, &question, SAFE), fixture.search(&old, &question, SAFE));
    }
    merge(&path, &old, is_gone, no_cluster, NOTHING).expect("it is merged");
    let fewer = Arc::new(Snapshot::open(&path).expect("it is opened"));
    assert_eq!(fewer.rows() + back.len(), old.rows());
    assert!(fewer.passages().all(|passage| !is_gone(passage)));
    let odd = Embedded { embeddings: &[1.0], passages: &back };
    assert!(matches!(merge(&path, &old, is_gone, no_cluster, odd), Err(SnapshotError::Unfit(_))));
}

/// An index of which every third cluster is bare.
fn bared(old: &Snapshot, path: &Path) -> Arc<Snapshot> {
    merge(path, old, |_| false, is_third, NOTHING).expect("it is merged");
    Arc::new(Snapshot::open(path).expect("it is opened"))
}

fn is_third(cluster: usize) -> bool {
    cluster.is_multiple_of(3)
}

#[test]
fn a_bare_cluster_takes_no_codes_and_its_passages_are_found_by_their_exact_values() {
    let (fixture, folder) = (Fixture::new(), tempfile::tempdir().expect("a folder"));
    let path = folder.path().join("index");
    let coded = fixture.written(&path, 1);
    let bare = bared(&coded, &folder.path().join("bare"));
    let bytes = |name: &str| std::fs::metadata(folder.path().join(name)).expect("it is there").len();
    let clusters = (0..CLUSTERS).filter(|cluster| is_third(*cluster)).count();
    let code_bytes = (DIMENSIONS / 8 + 6) as u64;
    let saved = (clusters * EACH) as u64 * code_bytes;
    assert!((bytes("index") - bytes("bare")).abs_diff(saved) < 64, "but for where sections begin");
    assert_eq!((0..CLUSTERS).filter(|cluster| bare.is_bare(*cluster)).count(), clusters);
    let found = recall(&fixture, |question| {
        let wanted =
            Wanted { question, count: COUNT, probes: CLUSTERS, bare_probes: CLUSTERS, deviations: SAFE };
        let search = Search::new(&bare, wanted, Kernel::best(), without(&[]));
        assert_eq!((search.certain(), search.probed()), (clusters * EACH, CLUSTERS));
        let (found, asked) = fixture.search(&bare, question, SAFE);
        assert!(asked >= clusters * EACH, "of a passage without a code nothing is known: {asked}");
        found
    });
    assert!(found >= 0.999, "{found}");
}

#[test]
fn a_bare_cluster_that_is_not_near_enough_is_not_looked_at() {
    let (fixture, folder) = (Fixture::new(), tempfile::tempdir().expect("a folder"));
    let coded = fixture.written(&folder.path().join("index"), 1);
    let bare = bared(&coded, &folder.path().join("bare"));
    let question = &fixture.embeddings[..DIMENSIONS];
    for (bare_probes, certain) in [(0, 0), (1, EACH - 1)] {
        // It lies in the first cluster, which is bare; one of its passages is gone.
        let wanted = Wanted { question, count: COUNT, probes: CLUSTERS, bare_probes, deviations: SAFE };
        let mut search = Search::new(&bare, wanted, Kernel::best(), without(&[1_000]));
        assert_eq!(search.certain(), certain);
        let first = search.ask(EACH - 1);
        assert_eq!(first.iter().all(|passage| cluster_of(*passage) == 0), certain > 0, "{first:?}");
    }
    assert_eq!(bare.along(question, 1), [0]);
}

#[test]
fn a_cluster_that_was_bare_has_its_codes_again_if_its_embeddings_are_there() {
    let (fixture, folder) = (Fixture::new(), tempfile::tempdir().expect("a folder"));
    let coded = fixture.written(&folder.path().join("index"), 1);
    let bare = bared(&coded, &folder.path().join("bare"));
    let path = folder.path().join("again");
    let all = Embedded { embeddings: &fixture.embeddings, passages: &fixture.passages };
    let again: Vec<u32> = fixture.passages.iter().copied().filter(|one| is_third(cluster_of(*one))).collect();
    let embeddings: Vec<f32> = again.iter().flat_map(|one| fixture.embedding(*one)).copied().collect();
    let added = Embedded { embeddings: &embeddings, passages: &again };
    merge(&path, &bare, |_| false, no_cluster, added).expect("it is merged");
    let read = |name: &str| std::fs::read(folder.path().join(name)).expect("it is there");
    assert!(read("again") == read("index"), "it is as it was before");
    let missing = merge(&path, &bare, |_| false, no_cluster, NOTHING).expect_err("nothing is embedded");
    assert!(missing.to_string().contains("there is no embedding of it"), "{missing}");
    // What is put into a bare cluster has no code, either.
    let others =
        Embedded { passages: &fixture.passages.iter().map(|one| one + 10_000).collect::<Vec<u32>>(), ..all };
    merge(&path, &bare, |_| false, is_third, others).expect("it is merged");
    let twice = Arc::new(Snapshot::open(&path).expect("it is opened"));
    assert_eq!(twice.rows(), 2 * bare.rows());
    assert!((0..CLUSTERS).all(|cluster| twice.is_bare(cluster) == is_third(cluster)));
}

#[test]
fn a_file_in_which_a_part_of_a_cluster_has_codes_is_refused() {
    let (fixture, folder) = (Fixture::new(), tempfile::tempdir().expect("a folder"));
    let path = folder.path().join("index");
    fixture.written(&path, 1);
    let mut bytes = std::fs::read(&path).expect("it is there");
    let starts: Vec<u8> = fixture.starts.iter().flat_map(|start| start.to_le_bytes()).collect();
    let places: Vec<usize> =
        (0..bytes.len() - starts.len()).filter(|at| bytes[*at..].starts_with(&starts)).collect();
    assert_eq!(places.len(), 2, "where clusters start, and where their codes do");
    bytes[places[1] + 4] -= 1;
    let body = crc32c::crc32c(&bytes[88..]);
    bytes[80..84].copy_from_slice(&body.to_le_bytes());
    let header = crc32c::crc32c(&bytes[..84]);
    bytes[84..88].copy_from_slice(&header.to_le_bytes());
    let refused = Snapshot::of(bytes).expect_err("it is refused");
    assert!(refused.contains("some passages have codes"), "{refused}");
}

/// The fixture's passages in the order of clusters, each with its cluster.
fn in_order(fixture: &Fixture) -> Vec<(u32, Vec<f32>, u32)> {
    let clusters = fixture.starts.windows(2).enumerate();
    let one = |(cluster, row): (usize, u32)| {
        let embedding = &fixture.embeddings[row as usize * DIMENSIONS..][..DIMENSIONS];
        (fixture.passages[row as usize], embedding.to_vec(), cluster as u32)
    };
    let rows = clusters.flat_map(|(cluster, ends)| {
        fixture.rows[ends[0] as usize..ends[1] as usize].iter().map(move |row| (cluster, *row))
    });
    rows.map(one).collect()
}

fn pushed(writer: &mut Writer, some: &[(u32, Vec<f32>, u32)]) -> Result<(), SnapshotError> {
    let embeddings: Vec<f32> = some.iter().flat_map(|one| one.1.clone()).collect();
    let passages: Vec<u32> = some.iter().map(|one| one.0).collect();
    let clusters: Vec<u32> = some.iter().map(|one| one.2).collect();
    writer.push(Embedded { embeddings: &embeddings, passages: &passages }, &clusters)
}

#[test]
fn an_index_written_some_passages_at_a_time_is_the_one_written_at_once() {
    let (fixture, folder) = (Fixture::new(), tempfile::tempdir().expect("a folder"));
    let (whole, parts) = (folder.path().join("whole"), folder.path().join("parts"));
    fixture.written(&whole, 2);
    for some in [1, 7, 10_000] {
        let mut writer = Writer::new(&basis(2), MODEL, &fixture.centroids).expect("it is one");
        for part in in_order(&fixture).chunks(some) {
            pushed(&mut writer, part).expect("they are in order");
        }
        writer.finish(&parts).expect("it has room");
        let read = |path| std::fs::read(path).expect("it is there");
        assert!(read(&parts) == read(&whole), "{some} at a time");
    }
}

#[test]
fn what_is_pushed_out_of_order_or_twice_is_refused() {
    let fixture = Fixture::new();
    let rows = in_order(&fixture);
    let refusal = |some: &[(u32, Vec<f32>, u32)]| {
        let mut writer = Writer::new(&basis(2), MODEL, &fixture.centroids).expect("it is one");
        pushed(&mut writer, some).expect_err("it is refused").to_string()
    };
    let beyond = (rows[0].0, rows[0].1.clone(), CLUSTERS as u32);
    assert!(refusal(&[rows[EACH].clone(), rows[0].clone()]).contains("cluster 0 behind cluster 1"));
    assert!(refusal(&[beyond]).contains("cluster 12 behind cluster 0 of 12"));
    assert!(refusal(&[rows[0].clone(), rows[0].clone()]).contains("is there twice"));
    assert!(Writer::new(&basis(2), MODEL, &[]).is_err());
}

#[test]
fn rows_refine_a_search_and_name_what_they_lack() {
    let (fixture, folder) = (Fixture::new(), tempfile::tempdir().expect("a folder"));
    let snapshot = fixture.written(&folder.path().join("index"), 1);
    let question = &fixture.questions()[0];
    let wanted = Wanted { question, count: COUNT, probes: CLUSTERS, bare_probes: 0, deviations: SAFE };
    let begin = || Search::new(&snapshot, wanted, Kernel::best(), without(&[]));
    // No passage has a row: the first that are asked for are named, again and again until they are given.
    let file = tempfile::tempfile().expect("it is made");
    let rows = Rows { file: &file, start: 0, dimensions: DIMENSIONS, numbers: &[], memory: &[] };
    let mut search = begin();
    loop {
        let refined = search.refine(&rows, question, 4).expect("nothing is read");
        assert!(refined.loaded.is_empty());
        if refined.missing.is_empty() {
            break;
        }
        search.give(refined.missing.into_iter().map(|passage| fixture.exact(passage, question)));
    }
    assert_eq!(passages(&search.found()), fixture.flat(question));
    let lost = Rows { numbers: &fixture.passages, ..rows };
    assert!(begin()
        .refine(&lost, question, 4)
        .is_err_and(|error| error.to_string().contains("it ends in row")));
}
