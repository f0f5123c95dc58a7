//! What a request does to the map and is answered.
//!
//! Invariant: both follow from the map and the request, but for what a description says of the moment.

use crate::request::Request;
use crate::service::KvOptions;
use crate::store::{commands, is_blind, keys_of, Call, Store, DATABASES};
use scotfree_io::now_realtime;
use scotfree_resp::codec::{is_error, write_bulk, write_error, write_header, write_simple};
use scotfree_resp::description::Description;
use scotfree_resp::payload::{
    write_response, CommandReader, RequestFlags, ResponseFlags, REQUEST_HEAD_BYTES,
};
use scotfree_state::{Facts, Touches};

/// Executes requests, with the scratch memory for one of them.
pub(crate) struct Executor {
    devices: u32,
    vouches: bool,
    request_bytes_max: usize,
    reader: CommandReader,
    reply: Vec<u8>,
    /// It is one value, whose reader takes a note of how long that is true.
    is_noted: bool,
}

impl Executor {
    pub fn new(options: &KvOptions) -> Executor {
        Executor {
            devices: options.devices,
            vouches: options.vouches,
            request_bytes_max: options.request_bytes_max,
            reader: CommandReader::default(),
            reply: Vec::new(),
            is_noted: false,
        }
    }

    /// What the last request was answered.
    pub fn reply(&self) -> &[u8] {
        &self.reply
    }

    /// Whether the last request was refused.
    pub fn is_refused(&self) -> bool {
        is_error(&self.reply)
    }

    /// Whether the last reply is one value, whose reader takes a note of it.
    pub fn is_noted(&self) -> bool {
        self.is_noted
    }

    /// How large a request that writes may be.
    pub fn request_bytes_max(&self) -> usize {
        self.request_bytes_max
    }

    /// Appends the response that bears the last reply.
    pub fn write_response(&self, store: &Store, out: &mut Vec<u8>) {
        let early_allowed = !store.is_nearly_full();
        let flags = ResponseFlags::NONE.with_if(early_allowed, ResponseFlags::EARLY_ALLOWED);
        write_response(out, flags, &self.reply);
    }

    /// Executes a request that may write, unless the log could not take it. Whether it may have changed the map.
    pub fn write(&mut self, store: &mut Store, bytes: &[u8]) -> bool {
        if bytes.len() > self.request_bytes_max {
            self.refuse("ERR the request is larger than the log takes");
            return false;
        }
        self.answer(store, bytes, true)
    }

    /// Executes a request; its reply is in [`Executor::reply`]. Whether it may have changed the map.
    pub fn answer(&mut self, store: &mut Store, bytes: &[u8], may_write: bool) -> bool {
        self.reply.clear();
        self.is_noted = false;
        let request = match Request::parse(bytes, &mut self.reader) {
            Ok(request) => request,
            Err(error) => {
                self.refuse(&format!("ERR scotfree: {error}"));
                return false;
            }
        };
        if request.has(RequestFlags::DESCRIBE) {
            let description = Description { cached: self.vouches, ..description(store, self.devices) };
            write_bulk(&mut self.reply, description.to_text().as_bytes());
            return false;
        }
        if request.has(RequestFlags::TRANSACTION) {
            write_header(&mut self.reply, request.command_count);
        } else if request.command_count == 0 {
            // A connection says that it needs nothing more.
            write_simple(&mut self.reply, "OK");
        }
        let is_get = self.run_commands(store, bytes, &request, may_write);
        self.is_noted = self.vouches && !may_write && is_get && self.shows_noted(&request);
        // A single command that is refused has changed nothing.
        may_write && request.command_count > 0 && !self.is_refused()
    }

    /// Answers with an error, and does nothing.
    pub fn refuse(&mut self, text: &str) {
        self.reply.clear();
        self.is_noted = false;
        write_error(&mut self.reply, text);
    }

    /// Answers that the data would take too much.
    pub fn refuse_to_grow(&mut self, store: &mut Store) {
        self.reply.clear();
        store.refuse_to_grow(&mut self.reply);
    }

    /// Whether a request asks for the description, whose answer says what time it is.
    pub fn is_description(&mut self, bytes: &[u8]) -> bool {
        Request::parse(bytes, &mut self.reader).is_ok_and(|request| request.has(RequestFlags::DESCRIBE))
    }

    /// Which keys a request touches.
    pub fn facts(&mut self, bytes: &[u8]) -> Facts {
        let mut facts = Facts { touches: Touches::Nothing, is_blind: false };
        let Ok(request) = Request::parse(bytes, &mut self.reader) else { return facts };
        let (db, is_resp3) = (request.head.db, request.has(RequestFlags::RESP3));
        let mut at = REQUEST_HEAD_BYTES;
        while let Ok(Some((args, next))) = self.reader.read(bytes, at) {
            at = next;
            let arguments: Vec<&[u8]> = args.iter().collect();
            let call = Call { arguments: &arguments, db, is_resp3, may_write: true };
            facts.is_blind = request.command_count == 1 && is_blind(&call);
            for key in keys_of(&call) {
                touch(&mut facts.touches, key);
            }
        }
        facts
    }

    /// Whether the reply is a value, alone, and whoever asked for it takes a note.
    fn shows_noted(&self, request: &Request) -> bool {
        let is_alone = request.command_count == 1 && !request.has(RequestFlags::TRANSACTION);
        let is_value = matches!(self.reply[..], [b'$', b'0'..=b'9', ..]);
        request.has(RequestFlags::NOTED) && is_alone && is_value
    }

    /// Whether the last command was a GET.
    fn run_commands(&mut self, store: &mut Store, bytes: &[u8], request: &Request, may_write: bool) -> bool {
        let mut is_get = false;
        let (db, is_resp3) = (request.head.db, request.has(RequestFlags::RESP3));
        let mut at = REQUEST_HEAD_BYTES;
        while let Ok(Some((args, next))) = self.reader.read(bytes, at) {
            at = next;
            let arguments: Vec<&[u8]> = args.iter().collect();
            is_get = arguments.len() == 2 && arguments[0].eq_ignore_ascii_case(b"GET");
            store.run(&Call { arguments: &arguments, db, is_resp3, may_write }, &mut self.reply);
        }
        is_get
    }
}

fn touch(touches: &mut Touches, key: Vec<u8>) {
    match touches {
        Touches::Nothing => *touches = Touches::One(key),
        Touches::One(other) if *other != key => *touches = Touches::Several,
        Touches::One(_) | Touches::Several => {}
    }
}

/// What a client's sidecar has to know of this service.
fn description(store: &Store, devices: u32) -> Description {
    Description {
        time_ms: (now_realtime().0 / 1_000_000) as i64,
        version: format!("scot-kv-{}", env!("CARGO_PKG_VERSION")),
        databases: DATABASES,
        // None is: positions lie in the log.
        reserved_db: u16::MAX,
        auth_required: false,
        writes_refused: None,
        early_allowed: !store.is_nearly_full(),
        packs: false,
        devices: Some(devices),
        commands: commands().collect(),
        ..Description::default()
    }
}
