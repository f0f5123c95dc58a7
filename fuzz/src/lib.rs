//! Fuzz targets: one function per parser, used by libFuzzer and by the driver for stable Rust.
//!
//! Invariant: a target panics if and only if a promise is broken; what it does depends on its input
//! alone.

pub mod cache;
pub mod driver;
pub mod frame;
pub mod front;
pub mod mutate;
pub mod otlp;
pub mod proxy;
pub mod resp;
pub mod snapshot;
pub mod thrift;
pub mod transform;
pub mod wire;

/// A function that takes any bytes, and where to start from.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Its name; also that of its folder of corpus and of its libFuzzer binary.
    pub name: &'static str,
    /// Panics if a promise is broken.
    pub run: fn(&[u8]),
    /// Inputs from which mutation begins.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// Every target.
pub const TARGETS: &[Target] = &[
    Target { name: "wire_packet", run: wire::packet, seeds: wire::packet_seeds },
    Target { name: "wire_reassembly", run: wire::reassembly, seeds: wire::reassembly_seeds },
    Target { name: "resp_request", run: resp::request, seeds: resp::request_seeds },
    Target { name: "resp_reply", run: resp::reply, seeds: resp::reply_seeds },
    Target { name: "resp_payload", run: resp::payload, seeds: resp::payload_seeds },
    Target { name: "resp_front", run: front::front, seeds: front::seeds },
    Target { name: "proxy_record", run: proxy::record, seeds: proxy::record_seeds },
    Target { name: "proxy_peers", run: proxy::peers, seeds: proxy::peers_seeds },
    Target { name: "cache_language", run: cache::language, seeds: cache::language_seeds },
    Target { name: "frame", run: frame::frame, seeds: frame::seeds },
    Target { name: "otlp_proto", run: otlp::proto, seeds: otlp::proto_seeds },
    Target { name: "otlp_json", run: otlp::json, seeds: otlp::json_seeds },
    Target { name: "transform_protobuf", run: transform::protobuf, seeds: transform::protobuf_seeds },
    Target { name: "transform_descriptor", run: transform::descriptor, seeds: transform::descriptor_seeds },
    Target { name: "transform_thrift", run: thrift::thrift, seeds: thrift::thrift_seeds },
    Target { name: "retrieval_snapshot", run: snapshot::snapshot, seeds: snapshot::seeds },
];

/// The target of a name.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::Path;

    #[test]
    fn every_target_holds_on_its_seeds() {
        for target in TARGETS {
            let seeds = (target.seeds)();
            assert!(!seeds.is_empty(), "{} has nothing to start from", target.name);
            for seed in seeds {
                (target.run)(&seed);
            }
        }
    }

    /// A target without a libFuzzer binary, or the other way round, would be left out by one of the
    /// two ways to run them.
    #[test]
    fn every_target_has_its_binary() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz_targets");
        let files = std::fs::read_dir(folder).expect("the folder of the binaries");
        let files: BTreeSet<String> =
            files.map(|file| file.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
        let expected: BTreeSet<String> = TARGETS.iter().map(|target| format!("{}.rs", target.name)).collect();
        assert_eq!(files, expected);
    }
}
