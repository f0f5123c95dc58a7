//! A post as Apache's compiler generates it for Rust: each field an option, a read by ids, a write of what is there.

use codec_peers::Drawn;
use scotfree_transform::thrift::Protocol;
use thrift::protocol::{
    TBinaryInputProtocol, TBinaryOutputProtocol, TCompactInputProtocol, TCompactOutputProtocol,
    TFieldIdentifier, TInputProtocol, TListIdentifier, TOutputProtocol, TStructIdentifier, TType,
};

/// Two fields: all structs within a post have as many.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Numbered {
    number: Option<i64>,
    text: Option<String>,
}

#[derive(Debug, Default, Clone, PartialEq)]
pub struct Url {
    shortened: Option<String>,
    expanded: Option<String>,
}

#[derive(Debug, Default, Clone, PartialEq)]
pub struct Post {
    post_id: Option<i64>,
    creator: Option<Numbered>,
    req_id: Option<i64>,
    text: Option<String>,
    user_mentions: Option<Vec<Numbered>>,
    media: Option<Vec<Numbered>>,
    urls: Option<Vec<Url>>,
    timestamp: Option<i64>,
    post_type: Option<i32>,
}

/// Appends its bytes to a vector that was emptied; how many there are.
pub fn encode(protocol: Protocol, post: &Post, out: &mut Vec<u8>) -> u64 {
    out.clear();
    match protocol {
        Protocol::Binary => post.write(&mut TBinaryOutputProtocol::new(&mut *out, true)),
        Protocol::Compact => post.write(&mut TCompactOutputProtocol::new(&mut *out)),
    }
    .unwrap();
    out.len() as u64
}

pub fn decode(protocol: Protocol, bytes: &[u8]) -> Post {
    match protocol {
        Protocol::Binary => Post::read(&mut TBinaryInputProtocol::new(bytes, true)),
        Protocol::Compact => Post::read(&mut TCompactInputProtocol::new(bytes)),
    }
    .unwrap()
}

fn number(number: Option<i64>) -> u64 {
    number.map_or(0, crate::number)
}

fn text(text: &Option<String>) -> u64 {
    text.as_deref().map_or(0, crate::text)
}

impl Numbered {
    fn drawn(r: &mut Drawn, text: String) -> Self {
        Numbered { number: Some((r.number() << 28) as i64), text: Some(text) }
    }

    fn sum(&self) -> u64 {
        number(self.number) + text(&self.text)
    }

    fn read<P: TInputProtocol>(from: &mut P) -> thrift::Result<Self> {
        from.read_struct_begin()?;
        let mut read = Numbered::default();
        loop {
            let field = from.read_field_begin()?;
            match (field.field_type, field.id) {
                (TType::Stop, _) => break,
                (_, Some(1)) => read.number = Some(from.read_i64()?),
                (_, Some(2)) => read.text = Some(from.read_string()?),
                (other, _) => from.skip(other)?,
            }
            from.read_field_end()?;
        }
        from.read_struct_end()?;
        Ok(read)
    }

    fn write<P: TOutputProtocol>(&self, to: &mut P) -> thrift::Result<()> {
        to.write_struct_begin(&TStructIdentifier::new("Numbered"))?;
        write_i64(to, "number", 1, self.number)?;
        write_text(to, "text", 2, &self.text)?;
        to.write_field_stop()?;
        to.write_struct_end()
    }
}

impl Url {
    fn drawn(r: &mut Drawn) -> Self {
        Url {
            shortened: Some(format!("http://short-url/{}", letters(r, 10))),
            expanded: Some(format!("http://{}", letters_of(r, 30, 20))),
        }
    }

    fn sum(&self) -> u64 {
        text(&self.shortened) + text(&self.expanded)
    }

    fn read<P: TInputProtocol>(from: &mut P) -> thrift::Result<Self> {
        from.read_struct_begin()?;
        let mut read = Url::default();
        loop {
            let field = from.read_field_begin()?;
            match (field.field_type, field.id) {
                (TType::Stop, _) => break,
                (_, Some(1)) => read.shortened = Some(from.read_string()?),
                (_, Some(2)) => read.expanded = Some(from.read_string()?),
                (other, _) => from.skip(other)?,
            }
            from.read_field_end()?;
        }
        from.read_struct_end()?;
        Ok(read)
    }

    fn write<P: TOutputProtocol>(&self, to: &mut P) -> thrift::Result<()> {
        to.write_struct_begin(&TStructIdentifier::new("Url"))?;
        write_text(to, "shortened_url", 1, &self.shortened)?;
        write_text(to, "expanded_url", 2, &self.expanded)?;
        to.write_field_stop()?;
        to.write_struct_end()
    }
}

impl Post {
    pub fn drawn(r: &mut Drawn) -> Self {
        let name = |r: &mut Drawn| format!("username_{}", r.below(1000));
        Post {
            post_id: Some((r.number() << 28) as i64),
            creator: Some(drawn_named(r, name)),
            req_id: Some((r.number() << 28) as i64),
            text: Some(letters_of(r, 75, 50)),
            user_mentions: Some((0..1 + r.below(2)).map(|_| drawn_named(r, name)).collect()),
            media: Some((0..r.below(2)).map(|_| Numbered::drawn(r, "png".to_owned())).collect()),
            urls: Some((0..1 + r.below(2)).map(|_| Url::drawn(r)).collect()),
            timestamp: Some(1_600_000_000_000 + r.number() as i64),
            post_type: Some(r.below(4) as i32),
        }
    }

    /// A sum over all of its fields.
    pub fn sum(&self) -> u64 {
        let numbers = [self.post_id, self.req_id, self.timestamp, self.post_type.map(i64::from)];
        let each = |list: &Option<Vec<Numbered>>| list.iter().flatten().map(Numbered::sum).sum::<u64>();
        self.creator.as_ref().map_or(0, Numbered::sum)
            + numbers.map(number).iter().sum::<u64>()
            + text(&self.text)
            + each(&self.user_mentions)
            + each(&self.media)
            + self.urls.iter().flatten().map(Url::sum).sum::<u64>()
    }

    fn read<P: TInputProtocol>(from: &mut P) -> thrift::Result<Self> {
        from.read_struct_begin()?;
        let mut read = Post::default();
        loop {
            let field = from.read_field_begin()?;
            match (field.field_type, field.id) {
                (TType::Stop, _) => break,
                (_, Some(1)) => read.post_id = Some(from.read_i64()?),
                (_, Some(2)) => read.creator = Some(Numbered::read(from)?),
                (_, Some(3)) => read.req_id = Some(from.read_i64()?),
                (_, Some(4)) => read.text = Some(from.read_string()?),
                (_, Some(5)) => read.user_mentions = Some(read_list(from, Numbered::read)?),
                (_, Some(6)) => read.media = Some(read_list(from, Numbered::read)?),
                (_, Some(7)) => read.urls = Some(read_list(from, Url::read)?),
                (_, Some(8)) => read.timestamp = Some(from.read_i64()?),
                (_, Some(9)) => read.post_type = Some(from.read_i32()?),
                (other, _) => from.skip(other)?,
            }
            from.read_field_end()?;
        }
        from.read_struct_end()?;
        Ok(read)
    }

    fn write<P: TOutputProtocol>(&self, to: &mut P) -> thrift::Result<()> {
        to.write_struct_begin(&TStructIdentifier::new("Post"))?;
        write_i64(to, "post_id", 1, self.post_id)?;
        if let Some(creator) = &self.creator {
            to.write_field_begin(&TFieldIdentifier::new("creator", TType::Struct, 2))?;
            creator.write(to)?;
            to.write_field_end()?;
        }
        write_i64(to, "req_id", 3, self.req_id)?;
        write_text(to, "text", 4, &self.text)?;
        write_list(to, ("user_mentions", 5), &self.user_mentions, Numbered::write)?;
        write_list(to, ("media", 6), &self.media, Numbered::write)?;
        write_list(to, ("urls", 7), &self.urls, Url::write)?;
        write_i64(to, "timestamp", 8, self.timestamp)?;
        if let Some(kind) = self.post_type {
            to.write_field_begin(&TFieldIdentifier::new("post_type", TType::I32, 9))?;
            to.write_i32(kind)?;
            to.write_field_end()?;
        }
        to.write_field_stop()?;
        to.write_struct_end()
    }
}

fn drawn_named(r: &mut Drawn, name: impl Fn(&mut Drawn) -> String) -> Numbered {
    let text = name(r);
    Numbered::drawn(r, text)
}

fn letters_of(r: &mut Drawn, least: u64, more: u64) -> String {
    let count = least + r.below(more);
    letters(r, count)
}

fn letters(r: &mut Drawn, count: u64) -> String {
    (0..count).map(|_| char::from(b'a' + r.below(26) as u8)).collect()
}

fn read_list<P: TInputProtocol, O>(
    from: &mut P,
    mut read: impl FnMut(&mut P) -> thrift::Result<O>,
) -> thrift::Result<Vec<O>> {
    let list = from.read_list_begin()?;
    let mut values = Vec::with_capacity(list.size as usize);
    for _ in 0..list.size {
        values.push(read(from)?);
    }
    from.read_list_end()?;
    Ok(values)
}

fn write_list<P: TOutputProtocol, O>(
    to: &mut P,
    (name, id): (&'static str, i16),
    list: &Option<Vec<O>>,
    mut write: impl FnMut(&O, &mut P) -> thrift::Result<()>,
) -> thrift::Result<()> {
    let Some(list) = list else { return Ok(()) };
    to.write_field_begin(&TFieldIdentifier::new(name, TType::List, id))?;
    to.write_list_begin(&TListIdentifier::new(TType::Struct, list.len() as i32))?;
    for one in list {
        write(one, to)?;
    }
    to.write_list_end()?;
    to.write_field_end()
}

fn write_i64(to: &mut impl TOutputProtocol, name: &str, id: i16, number: Option<i64>) -> thrift::Result<()> {
    let Some(number) = number else { return Ok(()) };
    to.write_field_begin(&TFieldIdentifier::new(name, TType::I64, id))?;
    to.write_i64(number)?;
    to.write_field_end()
}

fn write_text(
    to: &mut impl TOutputProtocol,
    name: &str,
    id: i16,
    text: &Option<String>,
) -> thrift::Result<()> {
    let Some(text) = text else { return Ok(()) };
    to.write_field_begin(&TFieldIdentifier::new(name, TType::String, id))?;
    to.write_string(text)?;
    to.write_field_end()
}
