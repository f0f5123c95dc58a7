//! A post of a social network by Thrift's two formats.

mod apache;

use super::messages::paths;
use super::{Bench, Work, MESSAGES};
use crate::peers::pilota_thrift::pilota_thrift::social as of_pilota;
use crate::thrift_messages::social::Post;
use crate::{Drawn, Read};
use apache::TSerializable;
use pilota::thrift::{binary, compact, Message as _};
use scotfree_transform::thrift::Protocol;
use scotfree_transform::{Arena, Limits};
use thrift::protocol::{
    TBinaryInputProtocol, TBinaryOutputProtocol, TCompactInputProtocol, TCompactOutputProtocol,
};

pub(super) fn binary(work: &mut dyn FnMut(&mut Bench<'_>)) {
    let posts = posts();
    let wires: Vec<Vec<u8>> = posts.iter().map(|post| by_apache(post, Protocol::Binary)).collect();
    let of_pilota = pilotas(&wires);
    let shared: Vec<pilota::Bytes> = wires.iter().map(|wire| wire.clone().into()).collect();
    let mut arenas: Vec<Arena> = wires.iter().map(|_| Arena::new()).collect();
    let views = views(&wires, &mut arenas, Protocol::Binary);
    let mut bench = Bench::new("thrift-binary", &wires);
    let mut out = Vec::with_capacity(1 << 16);
    bench.arm("apache", Work::Encode, &posts, move |post| {
        out.clear();
        post.write_to_out_protocol(&mut TBinaryOutputProtocol::new(&mut out, true)).unwrap();
        out.len() as u64
    });
    let mut out = pilota::BytesMut::with_capacity(1 << 16);
    bench.arm("pilota", Work::Encode, &of_pilota, move |post| {
        out.clear();
        post.encode(&mut binary::TBinaryProtocol::new(&mut out, false)).unwrap();
        out.len() as u64
    });
    ours(&mut bench, &views, &wires, Protocol::Binary);
    bench.arm("apache", Work::Decode, &wires, |wire| {
        apache::Post::read_from_in_protocol(&mut TBinaryInputProtocol::new(&wire[..], true)).unwrap().sum()
    });
    bench.arm("pilota", Work::Decode, &shared, |wire| {
        let mut wire = wire.clone();
        of_pilota::Post::decode(&mut binary::TBinaryProtocol::new(&mut wire, false)).unwrap().sum()
    });
    ours_decode(&mut bench, &wires, Protocol::Binary);
    work(&mut bench);
}

pub(super) fn compact(work: &mut dyn FnMut(&mut Bench<'_>)) {
    let posts = posts();
    let wires: Vec<Vec<u8>> = posts.iter().map(|post| by_apache(post, Protocol::Compact)).collect();
    let of_pilota = pilotas(&posts.iter().map(|post| by_apache(post, Protocol::Binary)).collect::<Vec<_>>());
    let mut arenas: Vec<Arena> = wires.iter().map(|_| Arena::new()).collect();
    let views = views(&wires, &mut arenas, Protocol::Compact);
    let mut bench = Bench::new("thrift-compact", &wires);
    let mut out = Vec::with_capacity(1 << 16);
    bench.arm("apache", Work::Encode, &posts, move |post| {
        out.clear();
        post.write_to_out_protocol(&mut TCompactOutputProtocol::new(&mut out)).unwrap();
        out.len() as u64
    });
    let mut out = pilota::BytesMut::with_capacity(1 << 16);
    bench.arm("pilota", Work::Encode, &of_pilota, move |post| {
        out.clear();
        post.encode(&mut compact::TCompactOutputProtocol::new(&mut out, false)).unwrap();
        out.len() as u64
    });
    ours(&mut bench, &views, &wires, Protocol::Compact);
    bench.arm("apache", Work::Decode, &wires, |wire| {
        apache::Post::read_from_in_protocol(&mut TCompactInputProtocol::new(&wire[..])).unwrap().sum()
    });
    // What Apache's crate writes by this protocol pilota 0.13 does not read.
    ours_decode(&mut bench, &wires, Protocol::Compact);
    work(&mut bench);
}

type View<'a> = <Post as scotfree_transform::Type>::Ref<'a>;

fn views<'a>(wires: &'a [Vec<u8>], arenas: &'a mut [Arena], protocol: Protocol) -> Vec<View<'a>> {
    let decode = |(wire, arena): (&'a Vec<u8>, &'a mut Arena)| {
        scotfree_transform::thrift::decode::<Post>(protocol, wire, arena, &Limits::default()).unwrap()
    };
    wires.iter().zip(arenas).map(decode).collect()
}

fn ours<'a>(bench: &mut Bench<'a>, views: &'a [View<'a>], wires: &[Vec<u8>], protocol: Protocol) {
    for (name, path) in paths() {
        let mut out = Vec::with_capacity(1 << 16);
        for (view, wire) in views.iter().zip(wires) {
            out.clear();
            scotfree_transform::thrift::encode_on::<Post>(path, protocol, view.slots(), &mut out);
            assert_eq!(&out, wire);
        }
        bench.arm(name, Work::Encode, views, move |view| {
            out.clear();
            scotfree_transform::thrift::encode_on::<Post>(path, protocol, view.slots(), &mut out);
            out.len() as u64
        });
    }
}

fn ours_decode<'a>(bench: &mut Bench<'a>, wires: &'a [Vec<u8>], protocol: Protocol) {
    for (name, path) in paths() {
        let limits = Limits::default();
        let mut arena = Arena::new();
        bench.arm(name, Work::Decode, wires, move |wire| {
            arena.reset();
            scotfree_transform::thrift::decode_on::<Post>(path, protocol, wire, &mut arena, &limits)
                .unwrap()
                .sum()
        });
    }
}

/// What pilota holds of TBinary's bytes.
fn pilotas(wires: &[Vec<u8>]) -> Vec<of_pilota::Post> {
    let decode = |wire: &Vec<u8>| {
        let mut wire = pilota::Bytes::from(wire.clone());
        of_pilota::Post::decode(&mut binary::TBinaryProtocol::new(&mut wire, false)).unwrap()
    };
    wires.iter().map(decode).collect()
}

fn by_apache(post: &apache::Post, protocol: Protocol) -> Vec<u8> {
    let mut out = Vec::new();
    match protocol {
        Protocol::Binary => post.write_to_out_protocol(&mut TBinaryOutputProtocol::new(&mut out, true)),
        Protocol::Compact => post.write_to_out_protocol(&mut TCompactOutputProtocol::new(&mut out)),
    }
    .unwrap();
    out
}

/// Posts as users write them: a text, some mentions, pictures and links.
fn posts() -> Vec<apache::Post> {
    (0..MESSAGES)
        .map(|seed| {
            let mut r = Drawn::new(seed * 77 + 5, 0);
            apache::Post {
                post_id: Some(r.written(35) as i64),
                creator: Some(apache::Creator {
                    user_id: Some(r.written(35) as i64),
                    username: Some(r.text_below(49)),
                }),
                req_id: Some(r.written(35) as i64),
                text: Some((0..=r.below(6)).map(|_| r.text_below(49)).collect::<Vec<_>>().join(" ")),
                user_mentions: Some((0..r.below(3)).map(|_| mention(&mut r)).collect()),
                media: Some((0..r.below(3)).map(|_| picture(&mut r)).collect()),
                urls: Some((0..r.below(3)).map(|_| link(&mut r)).collect()),
                timestamp: Some(r.written(35) as i64),
                post_type: Some(r.below(4) as i32),
            }
        })
        .collect()
}

fn mention(r: &mut Drawn) -> apache::UserMention {
    apache::UserMention { user_id: Some(r.written(35) as i64), username: Some(r.text_below(49)) }
}

fn picture(r: &mut Drawn) -> apache::Media {
    apache::Media { media_id: Some(r.written(35) as i64), media_type: Some("image/png".into()) }
}

fn link(r: &mut Drawn) -> apache::Url {
    apache::Url {
        shortened_url: Some(format!("http://short-url/{}", r.written(35))),
        expanded_url: Some(format!("https://{}/{}", r.text_below(49), r.text_below(49))),
    }
}

macro_rules! read {
    ($($message:ty: $($field:ident)*;)*) => {
        $(impl Read for $message {
            #[inline]
            fn sum(&self) -> u64 {
                let mut s = 0_u64;
                $(s = s.wrapping_add(self.$field.sum());)*
                s
            }
        })*
    };
}
read! {
    apache::Creator: user_id username;
    apache::UserMention: user_id username;
    apache::Media: media_id media_type;
    apache::Url: shortened_url expanded_url;
    apache::Post: post_id creator req_id text user_mentions media urls timestamp post_type;
    of_pilota::Creator: user_id username;
    of_pilota::UserMention: user_id username;
    of_pilota::Media: media_id media_type;
    of_pilota::Url: shortened_url expanded_url;
    of_pilota::Post: post_id creator req_id text user_mentions media urls timestamp post_type;
}

impl Read for of_pilota::PostType {
    #[inline(always)]
    fn sum(&self) -> u64 {
        self.inner() as u64
    }
}

use crate::thrift_messages::social::{CreatorRef, MediaRef, PostRef, UrlRef, UserMentionRef};

impl Read for CreatorRef<'_> {
    #[inline]
    fn sum(&self) -> u64 {
        self.user_id().sum().wrapping_add(self.username().sum())
    }
}

impl Read for UserMentionRef<'_> {
    #[inline]
    fn sum(&self) -> u64 {
        self.user_id().sum().wrapping_add(self.username().sum())
    }
}

impl Read for MediaRef<'_> {
    #[inline]
    fn sum(&self) -> u64 {
        self.media_id().sum().wrapping_add(self.media_type().sum())
    }
}

impl Read for UrlRef<'_> {
    #[inline]
    fn sum(&self) -> u64 {
        self.shortened_url().sum().wrapping_add(self.expanded_url().sum())
    }
}

impl Read for PostRef<'_> {
    #[inline]
    fn sum(&self) -> u64 {
        [
            self.post_id().sum(),
            self.creator().sum(),
            self.req_id().sum(),
            self.text().sum(),
            each(self.user_mentions()),
            each(self.media()),
            each(self.urls()),
            self.timestamp().sum(),
            u64::from(self.post_type() as u32),
        ]
        .into_iter()
        .fold(0, u64::wrapping_add)
    }
}

#[inline(always)]
fn each<T: Read>(values: impl Iterator<Item = T>) -> u64 {
    values.map(|value| value.sum()).fold(0, u64::wrapping_add)
}
