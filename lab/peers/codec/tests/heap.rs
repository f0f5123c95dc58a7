//! What the codec asks of the heap: nothing from the second message on, and never more than the limits say.

use codec_peers::every::every::kinds::{Maps, Packed};
use codec_peers::every::every::three::{All, Inner};
use codec_peers::every::every::two::{Needs, Wide};
use codec_peers::messages::classes::{Flat, Mixed, Nested};
use codec_peers::structs::BOTH;
use codec_peers::thrift_messages::social::Post;
use codec_peers::ways::{bytes_field, varint};
use codec_peers::{fill_flat, fill_mixed, fill_nested, Drawn};
use prost::Message as _;
use scotfree_transform::generated::Type;
use scotfree_transform::{protobuf, thrift, Arena, CpuPath, DecodeError, Exhausted, Limits};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's, which counts what this thread asks of it.
struct Counting;

thread_local! {
    static CALLS: Cell<usize> = const { Cell::new(0) };
    static LIVE_BYTES: Cell<isize> = const { Cell::new(0) };
    static PEAK_BYTES: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    CALLS.set(CALLS.get() + usize::from(bytes > 0));
    LIVE_BYTES.set(LIVE_BYTES.get() + bytes);
    PEAK_BYTES.set(PEAK_BYTES.get().max(LIVE_BYTES.get()));
}

// SAFETY: all is the system's allocator's.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: as the caller promises.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        CALLS.set(CALLS.get() + 1);
        count(size as isize - layout.size() as isize);
        // SAFETY: as the caller promises.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static HEAP: Counting = Counting;

/// How often work asks the heap, and how many bytes more than before it holds at most.
fn asked(work: impl FnOnce()) -> (usize, usize) {
    let (calls, live) = (CALLS.get(), LIVE_BYTES.get());
    PEAK_BYTES.set(live);
    work();
    (CALLS.get() - calls, (PEAK_BYTES.get() - live) as usize)
}

#[test]
fn the_allocator_counts() {
    let mut held = Vec::new();
    let (calls, bytes) = asked(|| held.reserve_exact(1000));
    held.push(1_u8);
    assert_eq!((calls, bytes), (1, 1000));
}

/// Decodes each message into the same arena and encodes it into the same vector, by the table and on each path.
fn round<T: Type>(messages: &[Vec<u8>], arena: &mut Arena, out: &mut Vec<u8>) {
    let limits = Limits::default();
    for bytes in messages {
        arena.reset();
        out.clear();
        let view = protobuf::table::decode(T::types(), T::INDEX, bytes, arena, &limits).unwrap();
        protobuf::table::encode(view, out);
        for path in CpuPath::all() {
            arena.reset();
            out.clear();
            let slots = protobuf::decode_slots_on::<T>(path, bytes, arena, &limits).unwrap();
            protobuf::encode_on::<T>(path, slots, out);
        }
    }
}

fn nothing_is_asked<T: Type>(messages: &[Vec<u8>]) {
    let (mut arena, mut out) = (Arena::new(), Vec::new());
    let (first, _) = asked(|| round::<T>(messages, &mut arena, &mut out));
    assert!(first > 0, "somebody has asked for the arena");
    let (again, _) = asked(|| round::<T>(messages, &mut arena, &mut out));
    assert_eq!(again, 0);
}

#[test]
fn from_the_second_message_on_nothing_is_asked_of_the_heap() {
    macro_rules! drawn {
        ($fill:ident) => {
            (0..200).map(|seed| $fill(&mut Drawn::new(seed, seed % 100)).encode_to_vec()).collect::<Vec<_>>()
        };
    }
    nothing_is_asked::<Flat>(&drawn!(fill_flat));
    nothing_is_asked::<Mixed>(&drawn!(fill_mixed));
    nothing_is_asked::<Nested>(&drawn!(fill_nested));
}

#[test]
fn nor_for_unknown_fields_groups_maps_packed_numbers_and_long_texts() {
    let text = bytes_field(14, "äöü €".repeat(2000).as_bytes());
    let inner = bytes_field(17, &bytes_field(2, &[b'x'; 300]));
    let map = bytes_field(26, b"\x0a\x01a\x10\x01").repeat(100);
    let packed = bytes_field(20, &[7; 1000]);
    let unknown = b"\xf8\x3f\x01\x18\x01".repeat(100);
    nothing_is_asked::<All>(&[[&text[..], &inner, &map, &packed, &unknown].concat()]);
    // Numbers that a closed enumeration does not know, alone and packed; groups in groups.
    nothing_is_asked::<Needs>(&[
        b"\x08\x01\x18\x63\x20\x63\x20\x01\x2a\x03\x01\x63\x02\x33\x08\x05\x34".to_vec()
    ]);
    nothing_is_asked::<Wide>(&[b"\x18\x01\xd0\x10\x80\x01".to_vec()]);
}

#[test]
fn nor_for_structs_of_thrift() {
    let limits = Limits::default();
    // A post with a field that nobody knows, by each format.
    let texts = "0b 0004 00000003 616263 0f 0007 0c 00000001 0b 0001 00000001 61 00 0b 0063 00000001 62 00";
    let posts = [(BOTH[0], texts), (BOTH[1], "48 03 616263 39 1c 18 01 61 00 08 c6 01 01 62 00")];
    for (protocol, bytes) in posts.map(|(protocol, text)| (protocol, unhex(text))) {
        let (mut arena, mut out) = (Arena::new(), Vec::new());
        let mut round = || {
            for path in CpuPath::all() {
                arena.reset();
                out.clear();
                let post = thrift::decode_slots_on::<Post>(path, protocol, &bytes, &mut arena, &limits);
                thrift::encode_on::<Post>(path, protocol, post.unwrap(), &mut out);
                assert!(out.len() > bytes.len(), "what was not set is written too");
                arena.reset();
                let (types, index) = (Post::types(), Post::INDEX);
                let view = thrift::table::decode(protocol, types, index, &bytes, &mut arena, &limits);
                thrift::table::encode(protocol, view.unwrap(), &mut out);
            }
        };
        assert!(asked(&mut round).0 > 0, "somebody has asked for the arena");
        assert_eq!(asked(&mut round).0, 0);
    }
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.chars().filter_map(|letter| letter.to_digit(16)).collect();
    digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect()
}

/// How many bytes an arena holds after this message, on each way, and what came of it.
fn held<T: Type>(bytes: &[u8], limits: &Limits) -> (usize, Result<(), DecodeError>) {
    let mut result = Ok(());
    let (_, most) = asked(|| {
        let mut arena = Arena::new();
        result = protobuf::table::decode(T::types(), T::INDEX, bytes, &mut arena, limits).map(|_| ());
    });
    let most = CpuPath::all().fold(most, |most, path| {
        let (_, own) = asked(|| {
            let mut arena = Arena::new();
            let straight = protobuf::decode_slots_on::<T>(path, bytes, &mut arena, limits).map(|_| ());
            assert_eq!(straight, result);
        });
        most.max(own)
    });
    (most, result)
}

const MILLION: usize = 1_000_000;
/// Beside slots, an arena holds a short input's copy.
const BESIDE: usize = 5_000;

#[test]
fn a_million_empty_messages_take_no_more_than_the_limit() {
    let bytes = b"\xba\x01\x00".repeat(MILLION);
    for slots_bytes_max in [10_000, 1 << 20, (16 << 20) + 12_345] {
        let limits = Limits { slots_bytes_max, ..Limits::default() };
        let (most, result) = held::<All>(&bytes, &limits);
        assert_eq!(result, Err(DecodeError::Exhausted(Exhausted)));
        assert!(most <= slots_bytes_max as usize + BESIDE, "{most} bytes of {slots_bytes_max}");
    }
    let limits = Limits::default();
    let (most, result) = held::<All>(&bytes, &limits);
    assert_eq!(result, Ok(()));
    assert!(most <= limits.slots_bytes_max as usize + BESIDE, "{most} bytes");
    assert!(most >= MILLION * Inner::SLOT_BYTES as usize, "each of them has its slots");
}

#[test]
fn a_map_of_a_million_equal_keys_takes_no_more_than_the_limit_and_the_last_counts() {
    let entry = |value: u64| bytes_field(1, &[b"\x08\x07\x10", &varint(value)[..]].concat());
    let bytes: Vec<u8> = (0..MILLION as u64).flat_map(|value| entry(value % 100 + 1)).collect();
    let limits = Limits { slots_bytes_max: 4 << 20, ..Limits::default() };
    let (most, result) = held::<Maps>(&bytes, &limits);
    assert_eq!(result, Err(DecodeError::Exhausted(Exhausted)));
    assert!(most <= (4 << 20) + BESIDE, "{most} bytes");
    assert_eq!(held::<Maps>(&bytes, &Limits::default()).1, Ok(()));
    let mut arena = Arena::new();
    let maps = protobuf::decode::<Maps>(&bytes, &mut arena, &Limits::default()).unwrap();
    let last = maps.f1().filter(|entry| entry.key() == 7).last().unwrap();
    assert_eq!((maps.f1().len(), last.value()), (MILLION, 100));
}

#[test]
fn numbers_behind_one_tag_take_no_more_than_the_limit() {
    // A byte each on the wire, eight each in the arena.
    let bytes = bytes_field(2, &vec![1; 8 * MILLION]);
    for slots_bytes_max in [100_000, 3 << 20, 50_000_000] {
        let limits = Limits { slots_bytes_max, ..Limits::default() };
        let (most, result) = held::<Packed>(&bytes, &limits);
        assert_eq!(result, Err(DecodeError::Exhausted(Exhausted)));
        assert!(most <= slots_bytes_max as usize + BESIDE, "{most} bytes of {slots_bytes_max}");
    }
    assert_eq!(held::<Packed>(&bytes, &Limits::default()).1, Ok(()));
}

#[test]
fn what_is_too_large_or_cut_is_refused_before_anything_is_asked() {
    let bytes = bytes_field(15, &vec![7; 1 << 20]);
    let limits = Limits { message_bytes_max: 1 << 20, ..Limits::default() };
    assert_eq!(held::<All>(&bytes, &limits), (0, Err(DecodeError::TooLarge)));
    let own = || scotfree_transform::Message::<All>::decode(&bytes, &limits).map(|_| ()).unwrap_err();
    let (_, most) = asked(|| assert_eq!(own(), DecodeError::TooLarge));
    assert_eq!(most, 0, "it is not copied before its length is looked at");
    // Two gigabytes that are not there.
    let cut = [&b"\x7a"[..], &varint(1 << 31)].concat();
    let (most, result) = held::<All>(&cut, &Limits::default());
    assert_eq!(result, Err(DecodeError::Cut { at: 1 }));
    assert!(most <= BESIDE, "{most} bytes");
}

#[test]
fn what_an_earlier_message_was_allowed_is_not_the_next_ones() {
    let (much, little) = (Limits::default(), Limits { slots_bytes_max: 2_000, ..Limits::default() });
    let bytes = b"\xba\x01\x00".repeat(100);
    for path in CpuPath::all() {
        let mut arena = Arena::new();
        protobuf::decode_slots_on::<All>(path, &bytes, &mut arena, &much).map(|_| ()).unwrap();
        arena.reset();
        let error =
            protobuf::decode_slots_on::<All>(path, &bytes, &mut arena, &little).map(|_| ()).unwrap_err();
        assert_eq!(error, DecodeError::Exhausted(Exhausted));
    }
}
