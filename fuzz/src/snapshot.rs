//! The file of an index of passages.

use scotfree_retrieval::{
    encoded, merged, Axis, Basis, Clusters, Embedded, Found, Kernel, Search, Snapshot, Wanted,
};

/// Where the header's checksums lie, and what they are of.
const BODY_AT: usize = 80;
const HEADER_AT: usize = 84;
const BODY: usize = 88;
const DIMENSIONS: usize = 64;
const COUNT: usize = 3;

/// Whatever a file says, if its checksums are right: it is refused, or searched without a panic.
pub fn snapshot(data: &[u8]) {
    // Without: nearly every input would end at a checksum.
    let mut bytes = data.to_vec();
    if bytes.len() >= BODY {
        let body = crc32c::crc32c(&bytes[BODY..]);
        bytes[BODY_AT..HEADER_AT].copy_from_slice(&body.to_le_bytes());
        let header = crc32c::crc32c(&bytes[..HEADER_AT]);
        bytes[HEADER_AT..BODY].copy_from_slice(&header.to_le_bytes());
    }
    let Ok(snapshot) = Snapshot::of(bytes) else { return };
    let snapshot = std::sync::Arc::new(snapshot);
    assert_eq!(snapshot.passages().count(), snapshot.rows());
    let question = vec![0.1; snapshot.basis().dimensions];
    let wanted =
        Wanted { question: &question, count: COUNT, probes: usize::MAX, bare_probes: 1, deviations: 2.0 };
    let gone = std::sync::Arc::new((0..1_000).step_by(5).collect());
    let mut search = Search::new(&snapshot, wanted, Kernel::best(), gone);
    assert!(search.estimated() + search.certain() <= snapshot.rows());
    loop {
        let asked = search.ask(2);
        if asked.is_empty() {
            break;
        }
        search.give(asked.into_iter().map(|passage| Found { passage, similarity: 0.5 }));
    }
    assert!(search.found().len() <= COUNT && search.guessed().len() <= COUNT);
}

/// Small indexes: of few axes and of all, and one of which a cluster is bare.
pub fn seeds() -> Vec<Vec<u8>> {
    let embedding = |place: usize| (0..DIMENSIONS).map(move |at| if at == place { 1.0 } else { 0.0 });
    let embeddings: Vec<f32> = (0..6).flat_map(embedding).collect();
    let centroids: Vec<f32> = (0..2).flat_map(embedding).collect();
    let clusters = Clusters {
        centroids: &centroids,
        starts: &[0, 4, 6],
        rows: &[5, 3, 1, 0, 2, 4],
        passages: &[10, 11, 12, 13, 14, 15],
    };
    let seed = |depths: &[u32]| {
        let axes: Vec<Axis> =
            depths.iter().map(|depth| Axis { step: 0.1, error: 0.001, depth: *depth }).collect();
        let directions = (0..axes.len()).flat_map(embedding).collect();
        let basis = Basis { dimensions: DIMENSIONS, directions, axes, rest: 0.01 };
        encoded(&basis, [1; 32], clusters, &embeddings).expect("it is an index")
    };
    let coded = Snapshot::of(seed(&[3; 20])).expect("it is one");
    let nothing = Embedded { embeddings: &[], passages: &[] };
    let bare = merged(&coded, |_| false, |cluster| cluster == 1, nothing).expect("it is an index");
    vec![seed(&[8; 8]), seed(&[1; DIMENSIONS]), seed(&[3; 20]), bare]
}
