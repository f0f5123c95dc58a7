//! How bits are gathered and spread: portably, or by a processor's own instructions.
//!
//! Invariant: all paths give equal bits. A `Bmi2` exists only where the processor has these instructions.

use super::frame::thrift::ThriftFrame;
use super::frame::{Begun, Frame, Numbers};
use super::loose::Loose;
use super::read::Slots;
use super::text::is_long_ascii;
use super::writer::Writer;
use crate::arena::Offset;
use crate::error::DecodeError;
use crate::message::Type;
use crate::owned::Plain;
use crate::protobuf::decode::Decoding;
#[cfg(any(test, not(target_arch = "x86_64")))]
use crate::slots::number;
use crate::slots::{Span, SLACK};
use crate::thrift::format::ThriftFormat;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::OnceLock;

/// Seven bits of each of eight bytes.
const SEVENS: u64 = 0x7f7f_7f7f_7f7f_7f7f;
/// The eighth of each.
#[cfg(any(test, not(target_arch = "x86_64")))]
const HIGH: u64 = !SEVENS;
/// Bytes whose stops are looked for at once.
pub const STOPS_BYTES: usize = 64;

/// One way to do it.
pub trait Path: Copy + 'static {
    /// Has the straight line of a type use the instructions of this path.
    ///
    /// What it begins with is said number by number, here and in `encoded`: a struct that is written by numbers and
    /// copied as a whole waits until they have left the store buffer, some 15 cycles for each message.
    fn decoded<T: Type>(
        self,
        decoding: &mut Decoding<'_>,
        part: Range<usize>,
        slots: Offset,
        depth_left: u16,
        is_empty: bool,
    ) -> Result<usize, DecodeError>;

    /// The same: where it ended.
    fn encoded<T: Type>(
        self,
        memory: &[u8],
        input: &[u8],
        slots: *const u8,
        out: &mut Vec<u8>,
        at: usize,
    ) -> usize;

    /// The same of a struct of Thrift.
    fn decoded_thrift<T: Type, F: ThriftFormat>(
        self,
        decoding: &mut Decoding<'_>,
        at: usize,
        slots: Offset,
        depth_left: u16,
    ) -> Result<usize, DecodeError>;

    /// The same of a struct of Thrift.
    fn encoded_thrift<T: Type, F: ThriftFormat>(
        self,
        memory: &[u8],
        input: &[u8],
        slots: *const u8,
        out: &mut Vec<u8>,
        at: usize,
    ) -> usize;

    /// Encodes one struct of Thrift.
    #[inline(always)]
    fn encode_thrift<'o, T: Type, F: ThriftFormat>(
        self,
        message: Slots<'_, T>,
        writer: Writer<'o>,
    ) -> Writer<'o> {
        let (out, at) = writer.parts();
        let at = self.encoded_thrift::<T, F>(message.memory, message.input, message.room, out, at);
        Writer::new(out, at)
    }

    /// Decodes one message.
    #[inline(always)]
    fn decode<T: Type>(self, begun: Begun<'_, '_, T>) -> Result<usize, DecodeError> {
        let Begun { decoding, at, end, slots, depth_left, is_empty, .. } = begun;
        self.decoded::<T>(decoding, at..end, slots, depth_left, is_empty)
    }

    /// Encodes one message.
    #[inline(always)]
    fn encode<'o, T: Type>(self, message: Slots<'_, T>, writer: Writer<'o>) -> Writer<'o> {
        let (out, at) = writer.parts();
        let at = self.encoded::<T>(message.memory, message.input, message.room, out, at);
        Writer::new(out, at)
    }

    /// The same of a plain struct, behind the first `at` bytes of `out`: where it ended.
    fn written<T: Plain>(self, message: &T, out: &mut Vec<u8>, at: usize) -> usize;

    /// The same of a run of numbers.
    fn numbers(self, run: Numbers<'_>) -> Option<Span>;

    /// The same of fields in any order.
    fn loose(self, fields: Loose<'_>) -> usize;

    /// The seven low bits of each byte, one behind the other.
    fn gathered(self, bytes: u64) -> u64;

    /// The reverse: 56 bits as seven of each byte.
    fn spread(self, bits: u64) -> u64;

    /// Whether `stops` is cheaper than to look at each number's word by itself.
    const HAS_STOPS: bool;

    /// Which of these bytes end a varint: those below 128, the first as the lowest bit.
    fn stops(self, bytes: &[u8; STOPS_BYTES]) -> u64;

    /// Whether the first `len` of these bytes are below 128.
    fn is_ascii(self, bytes: &[u8; SLACK], len: usize) -> bool;

    /// The same of all of a text that is longer.
    fn is_long_ascii(self, text: &[u8]) -> bool;
}

/// Shifts and masks: any processor.
#[derive(Debug, Clone, Copy)]
pub struct Portable;

impl Path for Portable {
    #[inline]
    fn decoded<T: Type>(
        self,
        decoding: &mut Decoding<'_>,
        part: Range<usize>,
        slots: Offset,
        depth_left: u16,
        is_empty: bool,
    ) -> Result<usize, DecodeError> {
        if is_nothing::<T>(&part) {
            return Ok(part.end);
        }
        T::decode(self, Frame::new(decoding, part, slots, depth_left, is_empty))
    }

    #[inline]
    fn encoded<T: Type>(
        self,
        memory: &[u8],
        input: &[u8],
        slots: *const u8,
        out: &mut Vec<u8>,
        at: usize,
    ) -> usize {
        T::encode(self, Slots { memory, input, room: slots, of: PhantomData }, Writer::new(out, at)).parts().1
    }

    #[inline]
    fn decoded_thrift<T: Type, F: ThriftFormat>(
        self,
        decoding: &mut Decoding<'_>,
        at: usize,
        slots: Offset,
        depth_left: u16,
    ) -> Result<usize, DecodeError> {
        T::decode_thrift(self, ThriftFrame::<T, F>::new(decoding, at, slots, depth_left))
    }

    #[inline]
    fn encoded_thrift<T: Type, F: ThriftFormat>(
        self,
        memory: &[u8],
        input: &[u8],
        slots: *const u8,
        out: &mut Vec<u8>,
        at: usize,
    ) -> usize {
        let message = Slots { memory, input, room: slots, of: PhantomData };
        T::encode_thrift::<Self, F>(self, message, Writer::new(out, at)).parts().1
    }

    #[inline]
    fn written<T: Plain>(self, message: &T, out: &mut Vec<u8>, at: usize) -> usize {
        message.write(self, Writer::new(out, at)).parts().1
    }

    #[inline(never)]
    fn numbers(self, run: Numbers<'_>) -> Option<Span> {
        run.decode(self)
    }

    #[inline(never)]
    fn loose(self, fields: Loose<'_>) -> usize {
        fields.run(self)
    }

    const HAS_STOPS: bool = cfg!(target_arch = "x86_64");

    #[inline(always)]
    fn stops(self, bytes: &[u8; STOPS_BYTES]) -> u64 {
        !high_bits_portably(bytes)
    }

    #[inline(always)]
    fn is_ascii(self, bytes: &[u8; SLACK], len: usize) -> bool {
        let behind = u64::MAX.checked_shl(len as u32).unwrap_or(0);
        high_bits_portably(bytes) & !behind == 0
    }

    #[inline(never)]
    fn is_long_ascii(self, text: &[u8]) -> bool {
        text.is_ascii()
    }

    #[inline(always)]
    fn gathered(self, bytes: u64) -> u64 {
        let pairs = (bytes & 0x007f_007f_007f_007f) | ((bytes & 0x7f00_7f00_7f00_7f00) >> 1);
        let fours = (pairs & 0x0000_3fff_0000_3fff) | ((pairs & 0x3fff_0000_3fff_0000) >> 2);
        (fours & 0x0fff_ffff) | ((fours & 0x0fff_ffff_0000_0000) >> 4)
    }

    #[inline(always)]
    fn spread(self, bits: u64) -> u64 {
        let fours = (bits & 0x0fff_ffff) | ((bits & 0x00ff_ffff_f000_0000) << 4);
        let pairs = (fours & 0x0000_3fff_0000_3fff) | ((fours & 0x0fff_c000_0fff_c000) << 2);
        (pairs & 0x007f_007f_007f_007f) | ((pairs & 0x3f80_3f80_3f80_3f80) << 1)
    }
}

/// The top bits of 64 bytes, by what every processor of this kind has.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn high_bits_portably(bytes: &[u8; 64]) -> u64 {
    use std::arch::x86_64::{_mm_loadu_si128, _mm_movemask_epi8};
    // SAFETY: sixteen bytes from each of these places are within the bytes; x86-64 has SSE2.
    let of_16 = |at| unsafe { _mm_movemask_epi8(_mm_loadu_si128(bytes.as_ptr().add(at).cast())) as u64 };
    of_16(0) | of_16(16) << 16 | of_16(32) << 32 | of_16(48) << 48
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn high_bits_portably(bytes: &[u8; 64]) -> u64 {
    high_bits_by_words(bytes)
}

/// The same by words, whose top bits a multiplication brings together.
#[cfg(any(test, not(target_arch = "x86_64")))]
#[inline(always)]
fn high_bits_by_words(bytes: &[u8; 64]) -> u64 {
    const TOGETHER: u64 = 0x0102_0408_1020_4080;
    let of_8 = |at: usize| ((number::<8>(&bytes[at..]) & HIGH) >> 7).wrapping_mul(TOGETHER) >> 56;
    (0..8).fold(0, |bits, word| bits | of_8(word * 8) << (word * 8))
}

/// `pext` and `pdep`, and 32 bytes at once (AVX2). Not where they are microcode (AMD before Zen 3).
#[derive(Debug, Clone, Copy)]
#[cfg(target_arch = "x86_64")]
pub struct Bmi2(());

#[cfg(target_arch = "x86_64")]
impl Bmi2 {
    /// If the processor has them, and they pay.
    pub fn detect() -> Option<Self> {
        let has = std::arch::is_x86_feature_detected!("bmi1")
            && std::arch::is_x86_feature_detected!("bmi2")
            && std::arch::is_x86_feature_detected!("lzcnt")
            && std::arch::is_x86_feature_detected!("avx2");
        (has && !is_microcode()).then_some(Bmi2(()))
    }
}

/// A way that this processor has; all give equal bytes.
#[derive(Debug, Clone, Copy)]
pub enum CpuPath {
    /// Shifts and masks.
    Portable,
    /// Its own instructions.
    #[cfg(target_arch = "x86_64")]
    Bmi2(Bmi2),
}

impl CpuPath {
    /// All that this processor has.
    pub fn all() -> impl Iterator<Item = CpuPath> {
        #[cfg(target_arch = "x86_64")]
        let native = Bmi2::detect().map(CpuPath::Bmi2);
        #[cfg(not(target_arch = "x86_64"))]
        let native = None;
        std::iter::once(CpuPath::Portable).chain(native)
    }
}

/// The fastest that there is, or what `SCOTFREE_TRANSFORM=portable` or `=bmi2` says; chosen once.
#[inline(always)]
pub(crate) fn chosen() -> CpuPath {
    static CHOSEN: OnceLock<CpuPath> = OnceLock::new();
    *CHOSEN.get_or_init(choose)
}

#[cold]
fn choose() -> CpuPath {
    let wanted = std::env::var("SCOTFREE_TRANSFORM").unwrap_or_default();
    #[cfg(target_arch = "x86_64")]
    if let (true, Some(path)) = (wanted != "portable", Bmi2::detect()) {
        return CpuPath::Bmi2(path);
    }
    CpuPath::Portable
}

/// AMD's families before 19h.
#[cfg(target_arch = "x86_64")]
fn is_microcode() -> bool {
    use std::arch::x86_64::__cpuid;
    let vendor = __cpuid(0);
    let is_amd = (vendor.ebx, vendor.edx, vendor.ecx) == (0x6874_7541, 0x6974_6e65, 0x444d_4163);
    let signature = __cpuid(1).eax;
    let (base, extended) = (signature >> 8 & 0xf, signature >> 20 & 0xff);
    is_amd && base + if base == 0xf { extended } else { 0 } < 0x19
}

/// Whether a message has no fields and needs none, which is asked before anything else: many within others are such.
#[inline(always)]
fn is_nothing<T: Type>(part: &Range<usize>) -> bool {
    part.is_empty() && !T::HAS_REQUIRED
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt")]
#[inline]
fn decoded_bmi2<T: Type>(
    path: Bmi2,
    decoding: &mut Decoding<'_>,
    part: Range<usize>,
    slots: Offset,
    depth_left: u16,
    is_empty: bool,
) -> Result<usize, DecodeError> {
    if is_nothing::<T>(&part) {
        return Ok(part.end);
    }
    T::decode(path, Frame::new(decoding, part, slots, depth_left, is_empty))
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt")]
#[inline]
fn encoded_bmi2<T: Type>(
    path: Bmi2,
    memory: &[u8],
    input: &[u8],
    slots: *const u8,
    out: &mut Vec<u8>,
    at: usize,
) -> usize {
    T::encode(path, Slots { memory, input, room: slots, of: PhantomData }, Writer::new(out, at)).parts().1
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt")]
#[inline]
fn decoded_thrift_bmi2<T: Type, F: ThriftFormat>(
    path: Bmi2,
    decoding: &mut Decoding<'_>,
    at: usize,
    slots: Offset,
    depth_left: u16,
) -> Result<usize, DecodeError> {
    T::decode_thrift(path, ThriftFrame::<T, F>::new(decoding, at, slots, depth_left))
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt")]
#[inline]
fn encoded_thrift_bmi2<T: Type, F: ThriftFormat>(
    path: Bmi2,
    memory: &[u8],
    input: &[u8],
    slots: *const u8,
    out: &mut Vec<u8>,
    at: usize,
) -> usize {
    let message = Slots { memory, input, room: slots, of: PhantomData };
    T::encode_thrift::<Bmi2, F>(path, message, Writer::new(out, at)).parts().1
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt")]
#[inline]
fn written_bmi2<T: Plain>(path: Bmi2, message: &T, out: &mut Vec<u8>, at: usize) -> usize {
    message.write(path, Writer::new(out, at)).parts().1
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt")]
#[inline(never)]
fn numbers_bmi2(path: Bmi2, run: Numbers<'_>) -> Option<Span> {
    run.decode(path)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt")]
#[inline(never)]
fn is_long_ascii_bmi2(path: Bmi2, text: &[u8]) -> bool {
    is_long_ascii(path, text)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt")]
#[inline(never)]
fn loose_bmi2(path: Bmi2, fields: Loose<'_>) -> usize {
    fields.run(path)
}

/// The top bits of 32 bytes.
///
/// # Safety
///
/// The processor has AVX2, and the bytes may be read.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn high_bits(bytes: *const u8) -> u32 {
    use std::arch::x86_64::{_mm256_loadu_si256, _mm256_movemask_epi8};
    // SAFETY: the caller says so.
    unsafe { _mm256_movemask_epi8(_mm256_loadu_si256(bytes.cast())) as u32 }
}

/// The top bits of 64 bytes.
///
/// # Safety
///
/// The processor has AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn high_bits_of_64(bytes: &[u8; 64]) -> u64 {
    // SAFETY: the caller says so; both halves are within the bytes.
    let (low, high) = unsafe { (high_bits(bytes.as_ptr()), high_bits(bytes.as_ptr().add(32))) };
    u64::from(low) | u64::from(high) << 32
}

#[cfg(target_arch = "x86_64")]
impl Path for Bmi2 {
    #[inline]
    fn decoded<T: Type>(
        self,
        decoding: &mut Decoding<'_>,
        part: Range<usize>,
        slots: Offset,
        depth_left: u16,
        is_empty: bool,
    ) -> Result<usize, DecodeError> {
        // SAFETY: `self` was made by `detect`, which has seen the four features.
        unsafe { decoded_bmi2::<T>(self, decoding, part, slots, depth_left, is_empty) }
    }

    #[inline]
    fn encoded<T: Type>(
        self,
        memory: &[u8],
        input: &[u8],
        slots: *const u8,
        out: &mut Vec<u8>,
        at: usize,
    ) -> usize {
        // SAFETY: as above.
        unsafe { encoded_bmi2::<T>(self, memory, input, slots, out, at) }
    }

    #[inline]
    fn decoded_thrift<T: Type, F: ThriftFormat>(
        self,
        decoding: &mut Decoding<'_>,
        at: usize,
        slots: Offset,
        depth_left: u16,
    ) -> Result<usize, DecodeError> {
        // SAFETY: as of `decoded`.
        unsafe { decoded_thrift_bmi2::<T, F>(self, decoding, at, slots, depth_left) }
    }

    #[inline]
    fn encoded_thrift<T: Type, F: ThriftFormat>(
        self,
        memory: &[u8],
        input: &[u8],
        slots: *const u8,
        out: &mut Vec<u8>,
        at: usize,
    ) -> usize {
        // SAFETY: as of `decoded`.
        unsafe { encoded_thrift_bmi2::<T, F>(self, memory, input, slots, out, at) }
    }

    #[inline]
    fn written<T: Plain>(self, message: &T, out: &mut Vec<u8>, at: usize) -> usize {
        // SAFETY: as above.
        unsafe { written_bmi2(self, message, out, at) }
    }

    #[inline]
    fn numbers(self, run: Numbers<'_>) -> Option<Span> {
        // SAFETY: as above.
        unsafe { numbers_bmi2(self, run) }
    }

    #[inline]
    fn loose(self, fields: Loose<'_>) -> usize {
        // SAFETY: as above.
        unsafe { loose_bmi2(self, fields) }
    }

    const HAS_STOPS: bool = true;

    #[inline(always)]
    fn stops(self, bytes: &[u8; STOPS_BYTES]) -> u64 {
        // SAFETY: as above.
        unsafe { !high_bits_of_64(bytes) }
    }

    #[inline(always)]
    fn is_ascii(self, bytes: &[u8; SLACK], len: usize) -> bool {
        // SAFETY: as above.
        unsafe { std::arch::x86_64::_bzhi_u64(high_bits_of_64(bytes), len as u32) == 0 }
    }

    #[inline(always)]
    fn is_long_ascii(self, text: &[u8]) -> bool {
        // SAFETY: as above.
        unsafe { is_long_ascii_bmi2(self, text) }
    }

    #[inline(always)]
    fn gathered(self, bytes: u64) -> u64 {
        // SAFETY: as above.
        unsafe { std::arch::x86_64::_pext_u64(bytes, SEVENS) }
    }

    #[inline(always)]
    fn spread(self, bits: u64) -> u64 {
        // SAFETY: as above.
        unsafe { std::arch::x86_64::_pdep_u64(bits, SEVENS) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_paths_see_which_bytes_are_below_128() {
        let mut bytes = [0_u8; 64];
        for seed in 0..4096_usize {
            bytes[seed % 64] = (seed.wrapping_mul(0x9e37_79b1) >> 11) as u8;
            let stops = bytes.iter().rev().fold(0, |bits, &byte| bits << 1 | u64::from(byte < 0x80));
            assert_eq!((Portable.stops(&bytes), !high_bits_by_words(&bytes)), (stops, stops));
            for len in 0..=64 {
                let is_ascii = bytes[..len].is_ascii();
                assert_eq!(Portable.is_ascii(&bytes, len), is_ascii, "{len}");
                #[cfg(target_arch = "x86_64")]
                if let Some(bmi2) = Bmi2::detect() {
                    assert_eq!((bmi2.stops(&bytes), bmi2.is_ascii(&bytes, len)), (stops, is_ascii), "{len}");
                }
            }
        }
    }

    #[test]
    fn all_paths_give_equal_bits() {
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        for _ in 0..10_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let bits = (seed ^ seed >> 31) & ((1 << 56) - 1);
            let spread = Portable.spread(bits);
            assert_eq!((Portable.gathered(spread | !SEVENS), spread & !SEVENS), (bits, 0));
            #[cfg(target_arch = "x86_64")]
            if let Some(bmi2) = Bmi2::detect() {
                assert_eq!((bmi2.spread(bits), bmi2.gathered(spread | !SEVENS)), (spread, bits));
            }
        }
    }
}
