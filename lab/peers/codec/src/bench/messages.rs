//! The arms of Protobuf's codecs over messages of one type.

/// Adds the arms of all codecs that have this type, over these inputs. Of a codec behind `without` nothing is measured.
/// The messages that are encoded are what each codec itself decodes.
macro_rules! protobuf {
    ($shape:literal, $items:expr, $work:ident, $package:ident::$name:ident, $view:ident, $wires:ident $(, without $($not:ident)*)?) => {{
        use crate::bench::Work;
        use crate::messages::$package::$name as Ours;
        use crate::peers::buffa_messages::$package as of_buffa;
        use crate::peers::pilota_messages::pilota_proto::$package as of_pilota;
        use crate::peers::quick_messages::$package as of_quick;
        use crate::prost_messages::$package as of_prost;
        use crate::Read as _;
        use buffa::{Message as _, MessageView as _};
        use quick_protobuf::{BytesReader, MessageRead as _, MessageWrite as _, Writer};
        use scotfree_transform::{protobuf, Arena, Limits, Padded};

        const WITHOUT: &[&str] = &[$($(stringify!($not)),*)?];
        let limits = Limits::default();
        let room = || Vec::<u8>::with_capacity(1 << 20);
        let prosts: Vec<of_prost::$name> =
            $wires.iter().map(|wire| <of_prost::$name as prost::Message>::decode(&wire[..]).unwrap()).collect();
        let buffas: Vec<of_buffa::$name> =
            $wires.iter().map(|wire| of_buffa::$name::decode_from_slice(wire).unwrap()).collect();
        let quicks: Vec<of_quick::$name> = $wires
            .iter()
            .map(|wire| of_quick::$name::from_reader(&mut BytesReader::from_bytes(wire), wire).unwrap())
            .collect();
        let mut arenas: Vec<Arena> = $wires.iter().map(|_| Arena::new()).collect();
        let views: Vec<_> = $wires
            .iter()
            .zip(&mut arenas)
            .map(|(wire, arena)| protobuf::decode::<Ours>(wire, arena, &limits).unwrap())
            .collect();
        let shared: Vec<pilota::Bytes> = $wires.iter().map(|wire| pilota::Bytes::from(wire.clone())).collect();
        let padded: Vec<(Vec<u8>, usize)> =
            $wires.iter().map(|wire| ([&wire[..], &[0; Padded::BEHIND]].concat(), wire.len())).collect();
        let mut bench = crate::bench::Bench::new($shape, &$wires);
        bench.items = $items;
        let is_encoded = !WITHOUT.contains(&"encode");
        if is_encoded {
            // Maps aside, whose order is each library's own, equal bytes.
            for (message, wire) in prosts.iter().zip(&$wires) {
                assert_eq!(prost::Message::encoded_len(message), wire.len());
            }
            let mut out = room();
            bench.arm("prost", Work::Encode, &prosts, move |message| {
                out.clear();
                prost::Message::encode(message, &mut out).unwrap();
                out.len() as u64
            });
            let mut out = room();
            bench.arm("buffa", Work::Encode, &buffas, move |message| {
                out.clear();
                buffa::Message::encode(message, &mut out);
                out.len() as u64
            });
            let mut out = room();
            bench.arm("quick-protobuf", Work::Encode, &quicks, move |message| {
                out.clear();
                message.write_message(&mut Writer::new(&mut out)).unwrap();
                out.len() as u64
            });
            for (name, path) in crate::bench::messages::paths() {
                let mut out = room();
                bench.arm(name, Work::Encode, &views, move |view| {
                    out.clear();
                    protobuf::encode_on::<Ours>(path, view.slots(), &mut out);
                    out.len() as u64
                });
            }
        }
        bench.arm("prost", Work::Decode, &$wires, |wire| {
            <of_prost::$name as prost::Message>::decode(&wire[..]).unwrap().sum()
        });
        bench.arm("buffa", Work::Decode, &$wires, |wire| of_buffa::$name::decode_from_slice(wire).unwrap().sum());
        bench.arm("buffa-view", Work::Decode, &$wires, |wire| {
            of_buffa::__buffa::view::$view::decode_view(wire).unwrap().sum()
        });
        bench.arm("quick-protobuf", Work::Decode, &$wires, |wire| {
            of_quick::$name::from_reader(&mut BytesReader::from_bytes(wire), wire).unwrap().sum()
        });
        if !WITHOUT.contains(&"pilota") {
            bench.arm("pilota", Work::Decode, &shared, |wire| {
                <of_pilota::$name as pilota::pb::Message>::decode(wire.clone()).unwrap().sum()
            });
        }
        for (name, path) in crate::bench::messages::paths() {
            let mut arena = Arena::new();
            bench.arm(name, Work::Decode, &$wires, move |wire| {
                arena.reset();
                protobuf::decode_on::<Ours>(path, wire, &mut arena, &limits).unwrap().sum()
            });
        }
        let mut arena = Arena::new();
        bench.arm("ours-borrowed", Work::Decode, &padded, move |(buffer, bytes)| {
            arena.reset();
            let input = Padded::within(buffer, *bytes).unwrap();
            protobuf::decode_padded::<Ours>(input, &mut arena, &limits).unwrap().sum()
        });
        $work(&mut bench);
    }};
}
pub(super) use protobuf;

/// The ways of our own that this processor has, by name.
pub(super) fn paths() -> Vec<(&'static str, scotfree_transform::CpuPath)> {
    use scotfree_transform::CpuPath;
    CpuPath::all()
        .map(|path| match path {
            CpuPath::Portable => ("ours-portable", path),
            #[allow(unreachable_patterns)] // where there is no other
            _ => ("ours", path),
        })
        .collect()
}
