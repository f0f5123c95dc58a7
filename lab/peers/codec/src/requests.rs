//! Requests as exporters write them, drawn at random: the same for the same seed.

use crate::Drawn;

/// What kind of spans.
#[derive(Debug, Clone, Copy)]
pub enum Class {
    /// Two attributes.
    Lean,
    /// A call over HTTP by the semantic conventions: 14 attributes, four of them integers.
    Http,
    /// A call with its nine stages: 13 attributes, most of them integers.
    Stages,
    /// Five attributes, four events, a link.
    Events,
}

/// A message under way.
#[derive(Default)]
struct Out(Vec<u8>);

impl Out {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn integer(&mut self, number: u64, value: u64) {
        self.varint(number << 3);
        self.varint(value);
    }

    fn bytes(&mut self, number: u64, bytes: &[u8]) {
        self.varint(number << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn eight(&mut self, number: u64, value: u64) {
        self.varint(number << 3 | 1);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn four(&mut self, number: u64, value: u32) {
        self.varint(number << 3 | 5);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn message(&mut self, number: u64, write: impl FnOnce(&mut Out)) {
        let mut inner = Out::default();
        write(&mut inner);
        self.bytes(number, &inner.0);
    }

    fn text_attribute(&mut self, number: u64, key: &str, value: &str) {
        self.message(number, |out| {
            out.bytes(1, key.as_bytes());
            out.message(2, |out| out.bytes(1, value.as_bytes()));
        });
    }

    fn integer_attribute(&mut self, number: u64, key: &str, value: u64) {
        self.message(number, |out| {
            out.bytes(1, key.as_bytes());
            out.message(2, |out| out.integer(3, value));
        });
    }
}

const STAGES: [&str; 9] = [
    "client_queue",
    "client_send",
    "request_wire",
    "server_receive",
    "server_queue",
    "application",
    "server_send",
    "response_wire",
    "client_receive",
];

impl Class {
    pub const ALL: [Class; 4] = [Class::Lean, Class::Http, Class::Stages, Class::Events];

    /// One resource, one scope, so many spans.
    pub fn request(self, spans: u64, seed: u64) -> Vec<u8> {
        let mut drawn = Drawn::new(seed, 0);
        let mut out = Out::default();
        out.message(1, |out| {
            out.message(1, |out| {
                for (key, value) in
                    [("service.name", "cart"), ("host.name", "node-3"), ("telemetry.sdk.language", "go")]
                {
                    out.text_attribute(1, key, value);
                }
            });
            out.message(2, |out| {
                out.message(1, |out| out.bytes(1, b"shop/tracing"));
                for _ in 0..spans {
                    out.message(2, |out| self.span(out, &mut drawn));
                }
            });
        });
        out.0
    }

    fn span(self, out: &mut Out, drawn: &mut Drawn) {
        let mut eight = || (drawn.below(1 << 31) << 32 | drawn.below(1 << 31) | 1).to_le_bytes();
        out.bytes(1, &[eight(), eight()].concat());
        out.bytes(2, &eight());
        out.bytes(4, &eight());
        out.bytes(5, format!("shop.Cart/Get{}", drawn.below(20)).as_bytes());
        out.integer(6, 2 + drawn.below(2));
        let start = 1_700_000_000_000_000_000 + drawn.below(1 << 31);
        out.eight(7, start);
        out.eight(8, start + drawn.below(1 << 30));
        match self {
            Class::Lean => lean(out),
            Class::Http => http(out, drawn),
            Class::Stages => stages(out, drawn),
            Class::Events => events(out, start),
        }
        let has_failed = drawn.below(20) == 0;
        out.message(15, |out| {
            if has_failed {
                out.bytes(2, b"deadline exceeded");
                out.integer(3, 2);
            }
        });
        out.four(16, 0x101);
    }
}

fn lean(out: &mut Out) {
    out.text_attribute(9, "rpc.system", "grpc");
    out.integer_attribute(9, "rpc.grpc.status_code", 0);
}

fn http(out: &mut Out, drawn: &mut Drawn) {
    out.text_attribute(9, "http.request.method", "GET");
    out.text_attribute(9, "url.path", &format!("/api/cart/{}", drawn.below(10_000)));
    out.text_attribute(9, "url.scheme", "http");
    out.text_attribute(9, "server.address", "cart.shop.svc.cluster.local");
    out.integer_attribute(9, "server.port", 8080);
    out.integer_attribute(9, "http.response.status_code", 200);
    out.text_attribute(9, "network.protocol.version", "1.1");
    out.text_attribute(9, "user_agent.original", "python-requests/2.31.0");
    out.text_attribute(9, "client.address", "10.4.12.7");
    out.integer_attribute(9, "network.peer.port", drawn.below(60_000));
    out.integer_attribute(9, "http.request.body.size", drawn.below(4_000));
    out.integer_attribute(9, "http.response.body.size", drawn.below(40_000));
    out.integer_attribute(9, "thread.id", drawn.below(64));
    out.text_attribute(9, "thread.name", "worker-7");
}

fn stages(out: &mut Out, drawn: &mut Drawn) {
    out.text_attribute(9, "rpc.system", "scotfree");
    out.text_attribute(9, "rpc.method", "SET");
    out.integer_attribute(9, "rpc.request.size", drawn.below(4_000));
    out.integer_attribute(9, "rpc.response.size", 5);
    for stage in STAGES {
        out.integer_attribute(9, &format!("rpc.stage.{stage}"), drawn.below(1 << 20));
    }
}

fn events(out: &mut Out, start: u64) {
    out.text_attribute(9, "rpc.system", "grpc");
    out.text_attribute(9, "rpc.service", "shop.Cart");
    out.text_attribute(9, "rpc.method", "Get");
    out.integer_attribute(9, "rpc.grpc.status_code", 0);
    out.text_attribute(9, "net.peer.name", "cart");
    for id in 0..4 {
        out.message(11, |out| {
            out.eight(1, start);
            out.bytes(2, b"message");
            out.text_attribute(3, "message.type", "SENT");
            out.integer_attribute(3, "message.id", id);
        });
    }
    out.message(13, |out| {
        out.bytes(1, &[7; 16]);
        out.bytes(2, &[8; 8]);
        out.text_attribute(4, "scotfree.link", "hedge");
    });
}
