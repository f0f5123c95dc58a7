//! A state on its way to a joiner: asked for piece by piece, so that what is lost is asked for again (G8).
//!
//! Invariant: the pieces of one snapshot only are put together; the snapshot is of one moment.

use crate::datagram::{blob, write_numbers, Reader, Refusal};

pub(crate) const WANT: u8 = 32;
pub(crate) const PIECE: u8 = 33;

/// The bytes of a piece, and how many are asked for at once.
pub(crate) const PIECE_BYTES: usize = 48 << 10;
const PIECES_PER_WANT: u64 = 4;

/// A snapshot that is being given.
#[derive(Debug, Clone, Hash)]
pub(crate) struct Giving {
    /// Tells it from others: the mark that it was taken at.
    pub mark: u64,
    pub bytes: Vec<u8>,
}

/// A snapshot that is being taken.
#[derive(Debug, Clone, Hash, Default)]
pub(crate) struct Taking {
    mark: Option<u64>,
    total: usize,
    bytes: Vec<u8>,
    /// Up to here it was asked for.
    asked: usize,
}

/// Which piece is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Want {
    /// Of the snapshot of this mark; of any if there is none yet.
    pub mark: u64,
    pub offset: u64,
    pub count: u64,
}

/// There is no snapshot yet: any will do.
pub(crate) const ANY: u64 = u64::MAX;

/// A piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece<'a> {
    pub mark: u64,
    pub total: u64,
    pub offset: u64,
    pub bytes: &'a [u8],
}

impl Taking {
    /// What to ask for now; also after a while in which nothing came.
    pub(crate) fn want(&mut self) -> Want {
        let offset = self.bytes.len() as u64;
        self.asked = self.bytes.len() + PIECE_BYTES * PIECES_PER_WANT as usize;
        Want { mark: self.mark.unwrap_or(ANY), offset, count: PIECES_PER_WANT }
    }

    /// Takes a piece; whether to ask for more now.
    pub(crate) fn take(&mut self, piece: &Piece<'_>) -> bool {
        if self.mark.is_none() || (piece.offset == 0 && self.mark != Some(piece.mark)) {
            *self = Taking { mark: Some(piece.mark), total: piece.total as usize, ..Taking::default() };
            // Of a snapshot that is not known yet only the first piece is given.
            self.asked = 1;
        }
        let fits = self.mark == Some(piece.mark) && piece.offset == self.bytes.len() as u64;
        if fits {
            self.bytes.extend_from_slice(piece.bytes);
        }
        fits && self.bytes.len() >= self.asked && !self.is_whole()
    }

    fn is_whole(&self) -> bool {
        self.mark.is_some() && self.bytes.len() == self.total
    }

    /// The whole snapshot, if it is there.
    pub(crate) fn whole(&self) -> Option<&[u8]> {
        self.is_whole().then_some(&self.bytes)
    }
}

impl Giving {
    /// The pieces that are wanted. None if the joiner speaks of another snapshot: it begins anew.
    pub(crate) fn pieces(&self, want: Want) -> impl Iterator<Item = Piece<'_>> {
        let (offset, count) = if want.mark == self.mark { (want.offset, want.count) } else { (0, 1) };
        let total = self.bytes.len() as u64;
        let offsets = (0..count.min(PIECES_PER_WANT))
            .map(move |piece| offset.saturating_add(piece * PIECE_BYTES as u64));
        offsets.filter(move |at| *at < total || (total == 0 && *at == 0)).map(move |at| {
            let end = (at as usize + PIECE_BYTES).min(self.bytes.len());
            Piece { mark: self.mark, total, offset: at, bytes: &self.bytes[at as usize..end] }
        })
    }
}

pub(crate) fn write_want(want: Want, out: &mut Vec<u8>) {
    write_numbers(&[want.mark, want.offset, want.count], out);
}

pub(crate) fn read_want(mut reader: Reader<'_>) -> Result<Want, Refusal> {
    let want = Want { mark: reader.u64()?, offset: reader.u64()?, count: reader.u64()? };
    reader.end().map(|()| want)
}

pub(crate) fn write_piece(piece: &Piece<'_>, out: &mut Vec<u8>) {
    write_numbers(&[piece.mark, piece.total, piece.offset], out);
    blob(piece.bytes, out);
}

pub(crate) fn read_piece(mut reader: Reader<'_>) -> Result<Piece<'_>, Refusal> {
    let (mark, total, offset) = (reader.u64()?, reader.u64()?, reader.u64()?);
    let bytes = reader.blob()?;
    reader.end().map(|()| Piece { mark, total, offset, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_arrives_whole_though_pieces_are_lost_and_doubled() {
        for bytes in [0, 1, PIECE_BYTES, 10 * PIECE_BYTES + 7] {
            let giving = Giving { mark: 3, bytes: (0..bytes).map(|at| at as u8).collect() };
            let mut taking = Taking::default();
            let mut round = 0;
            while taking.whole().is_none() {
                round += 1;
                assert!(round < 100, "it never ends");
                let want = taking.want();
                for (index, piece) in giving.pieces(want).enumerate() {
                    if index as u64 % 3 != round % 3 {
                        taking.take(&piece);
                        taking.take(&piece);
                    }
                }
            }
            assert_eq!(taking.whole(), Some(&giving.bytes[..]));
        }
    }

    #[test]
    fn pieces_of_another_snapshot_begin_anew() {
        let first = Giving { mark: 3, bytes: vec![1; 2 * PIECE_BYTES] };
        let second = Giving { mark: 9, bytes: vec![2; PIECE_BYTES + 1] };
        let mut taking = Taking::default();
        let want = taking.want();
        taking.take(&first.pieces(want).next().expect("there is one"));
        let want = taking.want();
        for piece in second.pieces(want) {
            taking.take(&piece);
        }
        let want = taking.want();
        for piece in second.pieces(want) {
            taking.take(&piece);
        }
        assert_eq!(taking.whole(), Some(&second.bytes[..]));
    }

    #[test]
    fn a_later_piece_of_another_snapshot_is_passed_over() {
        let giving = |mark| Giving { mark, bytes: vec![mark as u8; 2 * PIECE_BYTES] };
        let mut taking = Taking::default();
        let want = taking.want();
        taking.take(&giving(3).pieces(want).next().expect("there is one"));
        for mark in [9, 3] {
            let rest = Want { mark, offset: PIECE_BYTES as u64, count: 1 };
            for piece in giving(mark).pieces(rest) {
                taking.take(&piece);
            }
        }
        assert_eq!(taking.whole(), Some(&giving(3).bytes[..]));
    }
}
