//! `Post` over the protocols of Apache's crate, in the manner of what its compiler generates, written by hand so that
//! nobody needs that compiler: fields are `Option`s, protocols are trait objects, unknown fields are skipped.

use thrift::protocol::{
    TFieldIdentifier, TInputProtocol, TListIdentifier, TOutputProtocol, TStructIdentifier, TType,
};

/// What is read and written.
pub trait TSerializable: Sized {
    /// Reads one.
    fn read_from_in_protocol(from: &mut dyn TInputProtocol) -> thrift::Result<Self>;
    /// Writes it.
    fn write_to_out_protocol(&self, to: &mut dyn TOutputProtocol) -> thrift::Result<()>;
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Creator {
    pub user_id: Option<i64>,
    pub username: Option<String>,
}

impl TSerializable for Creator {
    fn read_from_in_protocol(from: &mut dyn TInputProtocol) -> thrift::Result<Creator> {
        from.read_struct_begin()?;
        let mut user_id: Option<i64> = None;
        let mut username: Option<String> = None;
        loop {
            let field = from.read_field_begin()?;
            if field.field_type == TType::Stop {
                break;
            }
            match thrift::protocol::field_id(&field)? {
                1 => user_id = Some(from.read_i64()?),
                2 => username = Some(from.read_string()?),
                _ => from.skip(field.field_type)?,
            }
            from.read_field_end()?;
        }
        from.read_struct_end()?;
        Ok(Creator { user_id, username })
    }

    fn write_to_out_protocol(&self, to: &mut dyn TOutputProtocol) -> thrift::Result<()> {
        to.write_struct_begin(&TStructIdentifier::new("Creator"))?;
        if let Some(user_id) = self.user_id {
            to.write_field_begin(&TFieldIdentifier::new("user_id", TType::I64, 1))?;
            to.write_i64(user_id)?;
            to.write_field_end()?;
        }
        if let Some(ref username) = self.username {
            to.write_field_begin(&TFieldIdentifier::new("username", TType::String, 2))?;
            to.write_string(username)?;
            to.write_field_end()?;
        }
        to.write_field_stop()?;
        to.write_struct_end()
    }
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct UserMention {
    pub user_id: Option<i64>,
    pub username: Option<String>,
}

impl TSerializable for UserMention {
    fn read_from_in_protocol(from: &mut dyn TInputProtocol) -> thrift::Result<UserMention> {
        from.read_struct_begin()?;
        let mut user_id: Option<i64> = None;
        let mut username: Option<String> = None;
        loop {
            let field = from.read_field_begin()?;
            if field.field_type == TType::Stop {
                break;
            }
            match thrift::protocol::field_id(&field)? {
                1 => user_id = Some(from.read_i64()?),
                2 => username = Some(from.read_string()?),
                _ => from.skip(field.field_type)?,
            }
            from.read_field_end()?;
        }
        from.read_struct_end()?;
        Ok(UserMention { user_id, username })
    }

    fn write_to_out_protocol(&self, to: &mut dyn TOutputProtocol) -> thrift::Result<()> {
        to.write_struct_begin(&TStructIdentifier::new("UserMention"))?;
        if let Some(user_id) = self.user_id {
            to.write_field_begin(&TFieldIdentifier::new("user_id", TType::I64, 1))?;
            to.write_i64(user_id)?;
            to.write_field_end()?;
        }
        if let Some(ref username) = self.username {
            to.write_field_begin(&TFieldIdentifier::new("username", TType::String, 2))?;
            to.write_string(username)?;
            to.write_field_end()?;
        }
        to.write_field_stop()?;
        to.write_struct_end()
    }
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Media {
    pub media_id: Option<i64>,
    pub media_type: Option<String>,
}

impl TSerializable for Media {
    fn read_from_in_protocol(from: &mut dyn TInputProtocol) -> thrift::Result<Media> {
        from.read_struct_begin()?;
        let mut media_id: Option<i64> = None;
        let mut media_type: Option<String> = None;
        loop {
            let field = from.read_field_begin()?;
            if field.field_type == TType::Stop {
                break;
            }
            match thrift::protocol::field_id(&field)? {
                1 => media_id = Some(from.read_i64()?),
                2 => media_type = Some(from.read_string()?),
                _ => from.skip(field.field_type)?,
            }
            from.read_field_end()?;
        }
        from.read_struct_end()?;
        Ok(Media { media_id, media_type })
    }

    fn write_to_out_protocol(&self, to: &mut dyn TOutputProtocol) -> thrift::Result<()> {
        to.write_struct_begin(&TStructIdentifier::new("Media"))?;
        if let Some(media_id) = self.media_id {
            to.write_field_begin(&TFieldIdentifier::new("media_id", TType::I64, 1))?;
            to.write_i64(media_id)?;
            to.write_field_end()?;
        }
        if let Some(ref media_type) = self.media_type {
            to.write_field_begin(&TFieldIdentifier::new("media_type", TType::String, 2))?;
            to.write_string(media_type)?;
            to.write_field_end()?;
        }
        to.write_field_stop()?;
        to.write_struct_end()
    }
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Url {
    pub shortened_url: Option<String>,
    pub expanded_url: Option<String>,
}

impl TSerializable for Url {
    fn read_from_in_protocol(from: &mut dyn TInputProtocol) -> thrift::Result<Url> {
        from.read_struct_begin()?;
        let mut shortened_url: Option<String> = None;
        let mut expanded_url: Option<String> = None;
        loop {
            let field = from.read_field_begin()?;
            if field.field_type == TType::Stop {
                break;
            }
            match thrift::protocol::field_id(&field)? {
                1 => shortened_url = Some(from.read_string()?),
                2 => expanded_url = Some(from.read_string()?),
                _ => from.skip(field.field_type)?,
            }
            from.read_field_end()?;
        }
        from.read_struct_end()?;
        Ok(Url { shortened_url, expanded_url })
    }

    fn write_to_out_protocol(&self, to: &mut dyn TOutputProtocol) -> thrift::Result<()> {
        to.write_struct_begin(&TStructIdentifier::new("Url"))?;
        if let Some(ref shortened_url) = self.shortened_url {
            to.write_field_begin(&TFieldIdentifier::new("shortened_url", TType::String, 1))?;
            to.write_string(shortened_url)?;
            to.write_field_end()?;
        }
        if let Some(ref expanded_url) = self.expanded_url {
            to.write_field_begin(&TFieldIdentifier::new("expanded_url", TType::String, 2))?;
            to.write_string(expanded_url)?;
            to.write_field_end()?;
        }
        to.write_field_stop()?;
        to.write_struct_end()
    }
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Post {
    pub post_id: Option<i64>,
    pub creator: Option<Creator>,
    pub req_id: Option<i64>,
    pub text: Option<String>,
    pub user_mentions: Option<Vec<UserMention>>,
    pub media: Option<Vec<Media>>,
    pub urls: Option<Vec<Url>>,
    pub timestamp: Option<i64>,
    pub post_type: Option<i32>,
}

impl TSerializable for Post {
    fn read_from_in_protocol(from: &mut dyn TInputProtocol) -> thrift::Result<Post> {
        from.read_struct_begin()?;
        let mut post_id: Option<i64> = None;
        let mut creator: Option<Creator> = None;
        let mut req_id: Option<i64> = None;
        let mut text: Option<String> = None;
        let mut user_mentions: Option<Vec<UserMention>> = None;
        let mut media: Option<Vec<Media>> = None;
        let mut urls: Option<Vec<Url>> = None;
        let mut timestamp: Option<i64> = None;
        let mut post_type: Option<i32> = None;
        loop {
            let field = from.read_field_begin()?;
            if field.field_type == TType::Stop {
                break;
            }
            match thrift::protocol::field_id(&field)? {
                1 => post_id = Some(from.read_i64()?),
                2 => creator = Some(Creator::read_from_in_protocol(from)?),
                3 => req_id = Some(from.read_i64()?),
                4 => text = Some(from.read_string()?),
                5 => {
                    let list = from.read_list_begin()?;
                    let mut values = Vec::with_capacity(list.size as usize);
                    for _ in 0..list.size {
                        values.push(UserMention::read_from_in_protocol(from)?);
                    }
                    from.read_list_end()?;
                    user_mentions = Some(values);
                }
                6 => {
                    let list = from.read_list_begin()?;
                    let mut values = Vec::with_capacity(list.size as usize);
                    for _ in 0..list.size {
                        values.push(Media::read_from_in_protocol(from)?);
                    }
                    from.read_list_end()?;
                    media = Some(values);
                }
                7 => {
                    let list = from.read_list_begin()?;
                    let mut values = Vec::with_capacity(list.size as usize);
                    for _ in 0..list.size {
                        values.push(Url::read_from_in_protocol(from)?);
                    }
                    from.read_list_end()?;
                    urls = Some(values);
                }
                8 => timestamp = Some(from.read_i64()?),
                9 => post_type = Some(from.read_i32()?),
                _ => from.skip(field.field_type)?,
            }
            from.read_field_end()?;
        }
        from.read_struct_end()?;
        Ok(Post { post_id, creator, req_id, text, user_mentions, media, urls, timestamp, post_type })
    }

    fn write_to_out_protocol(&self, to: &mut dyn TOutputProtocol) -> thrift::Result<()> {
        to.write_struct_begin(&TStructIdentifier::new("Post"))?;
        if let Some(post_id) = self.post_id {
            to.write_field_begin(&TFieldIdentifier::new("post_id", TType::I64, 1))?;
            to.write_i64(post_id)?;
            to.write_field_end()?;
        }
        if let Some(ref creator) = self.creator {
            to.write_field_begin(&TFieldIdentifier::new("creator", TType::Struct, 2))?;
            creator.write_to_out_protocol(to)?;
            to.write_field_end()?;
        }
        if let Some(req_id) = self.req_id {
            to.write_field_begin(&TFieldIdentifier::new("req_id", TType::I64, 3))?;
            to.write_i64(req_id)?;
            to.write_field_end()?;
        }
        if let Some(ref text) = self.text {
            to.write_field_begin(&TFieldIdentifier::new("text", TType::String, 4))?;
            to.write_string(text)?;
            to.write_field_end()?;
        }
        if let Some(ref user_mentions) = self.user_mentions {
            to.write_field_begin(&TFieldIdentifier::new("user_mentions", TType::List, 5))?;
            to.write_list_begin(&TListIdentifier::new(TType::Struct, user_mentions.len() as i32))?;
            for value in user_mentions {
                value.write_to_out_protocol(to)?;
            }
            to.write_list_end()?;
            to.write_field_end()?;
        }
        if let Some(ref media) = self.media {
            to.write_field_begin(&TFieldIdentifier::new("media", TType::List, 6))?;
            to.write_list_begin(&TListIdentifier::new(TType::Struct, media.len() as i32))?;
            for value in media {
                value.write_to_out_protocol(to)?;
            }
            to.write_list_end()?;
            to.write_field_end()?;
        }
        if let Some(ref urls) = self.urls {
            to.write_field_begin(&TFieldIdentifier::new("urls", TType::List, 7))?;
            to.write_list_begin(&TListIdentifier::new(TType::Struct, urls.len() as i32))?;
            for value in urls {
                value.write_to_out_protocol(to)?;
            }
            to.write_list_end()?;
            to.write_field_end()?;
        }
        if let Some(timestamp) = self.timestamp {
            to.write_field_begin(&TFieldIdentifier::new("timestamp", TType::I64, 8))?;
            to.write_i64(timestamp)?;
            to.write_field_end()?;
        }
        if let Some(post_type) = self.post_type {
            to.write_field_begin(&TFieldIdentifier::new("post_type", TType::I32, 9))?;
            to.write_i32(post_type)?;
            to.write_field_end()?;
        }
        to.write_field_stop()?;
        to.write_struct_end()
    }
}
