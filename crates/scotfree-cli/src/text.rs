//! Values that stand in files, variables and flags as one word, such as `disk:/var/log:64M`.
//!
//! Invariant: each is written as it is read, and a wrong one is answered with what is allowed.

use scotfree_core::{Nanos, Tier, TierError};
use scotfree_sidecar::redis::RedisAddress;
use scotfree_stage::config::{is_plain_name, PLAIN_NAME_RULE};
use scotfree_trace::{Endpoint, EndpointError};
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

/// The port of control messages and servers, unless another is named.
pub const PORT_DEFAULT: u16 = 51_000;

/// A word as a file or a variable has it: what looks like a number need not be quoted.
#[derive(Deserialize)]
#[serde(transparent)]
pub struct Word(#[serde(deserialize_with = "word")] String);

fn word<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    struct Visitor;

    impl serde::de::Visitor<'_> for Visitor {
        type Value = String;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a word or a whole number")
        }

        fn visit_str<E>(self, text: &str) -> Result<String, E> {
            Ok(text.to_owned())
        }

        fn visit_u64<E>(self, number: u64) -> Result<String, E> {
            Ok(number.to_string())
        }

        fn visit_i64<E>(self, number: i64) -> Result<String, E> {
            Ok(number.to_string())
        }
    }

    deserializer.deserialize_any(Visitor)
}

/// Gives a type with `FromStr` and `Display` the same form in files.
macro_rules! as_text {
    ($type:ty) => {
        impl TryFrom<Word> for $type {
            type Error = String;

            fn try_from(word: Word) -> Result<Self, String> {
                word.0.parse()
            }
        }

        impl From<$type> for String {
            fn from(value: $type) -> String {
                value.to_string()
            }
        }
    };
}

/// What a log of a device lies in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogTier {
    /// In memory.
    Ram,
    /// In persistent memory.
    Pmem,
    /// On disk.
    Disk,
}

/// A log of a device: `ram:PATH[:SIZE]`, `pmem:PATH[:SIZE]` or `disk:PATH[:SIZE]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Word", into = "String")]
pub struct LogSpec {
    /// Where it is kept.
    pub tier: LogTier,
    /// Its file.
    pub path: PathBuf,
    /// How large it may be.
    pub size: Option<Size>,
}
as_text!(LogSpec);

impl FromStr for LogSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<LogSpec, String> {
        let wrong = || {
            format!("`{text}` is no log; allowed are ram:PATH[:SIZE], pmem:PATH[:SIZE] and disk:PATH[:SIZE]")
        };
        let (tier, rest) = text.split_once(':').ok_or_else(wrong)?;
        let tier = match tier {
            "ram" => LogTier::Ram,
            "pmem" => LogTier::Pmem,
            "disk" => LogTier::Disk,
            _ => return Err(wrong()),
        };
        // What begins as a number is meant as a size; it must not become part of a file's name unseen.
        let begins_as_number = |c: char| c.is_ascii_digit() || c == '-' || c == '+';
        let sized = rest.rsplit_once(':').filter(|(_, size)| size.starts_with(begins_as_number));
        let (path, size) = match sized {
            Some((path, size)) => (path, Some(size.parse::<Size>()?)),
            None => (rest, None),
        };
        if path.is_empty() {
            return Err(wrong());
        }
        Ok(LogSpec { tier, path: path.into(), size })
    }
}

impl fmt::Display for LogSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tier = match self.tier {
            LogTier::Ram => "ram",
            LogTier::Pmem => "pmem",
            LogTier::Disk => "disk",
        };
        write!(f, "{tier}:{}", self.path.display())?;
        self.size.map_or(Ok(()), |size| write!(f, ":{size}"))
    }
}

/// Bytes: `4096`, `64K`, `64M`, `2G`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "Word", into = "String")]
pub struct Size(pub u64);
as_text!(Size);

const UNITS: [(char, u64); 3] = [('G', 1 << 30), ('M', 1 << 20), ('K', 1 << 10)];

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        let unit = UNITS.iter().find(|(name, _)| text.to_uppercase().ends_with(*name));
        let digits = unit.map_or(text, |_| &text[..text.len() - 1]);
        let count: Option<u64> = digits.parse().ok();
        let bytes = count.and_then(|count| count.checked_mul(unit.map_or(1, |(_, bytes)| *bytes)));
        bytes.map(Size).ok_or_else(|| format!("`{text}` is no size; allowed are such as 4096, 64K, 64M, 2G"))
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = UNITS.iter().find(|(_, bytes)| self.0 > 0 && self.0.is_multiple_of(*bytes));
        match unit {
            Some((name, bytes)) => write!(f, "{}{name}", self.0 / bytes),
            None => write!(f, "{}", self.0),
        }
    }
}

/// A time: `500us`, `5ms`, `1s`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "Word", into = "String")]
pub struct Span(pub Nanos);
as_text!(Span);

const TIMES: [(&str, u64); 3] = [("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Span, String> {
        let spans = TIMES.iter().filter_map(|(unit, nanos)| {
            let count: u64 = text.strip_suffix(unit)?.parse().ok()?;
            count.checked_mul(*nanos)
        });
        let wrong = || format!("`{text}` is no time; allowed are such as 500us, 5ms, 1s");
        spans.map(|nanos| Span(Nanos(nanos))).next().ok_or_else(wrong)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = TIMES.iter().rev().find(|(_, nanos)| self.0 .0.is_multiple_of(*nanos));
        let (unit, nanos) = whole.unwrap_or(&TIMES[0]);
        write!(f, "{}{unit}", self.0 .0 / nanos)
    }
}

/// An option of a device's function: `FUNCTION.OPTION=VALUE`, where the value is a number or a size.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Word", into = "String")]
pub struct OptionSpec {
    /// Of which function.
    pub function: String,
    /// Its name.
    pub name: String,
    /// What it is to be.
    pub value: Size,
}
as_text!(OptionSpec);

impl FromStr for OptionSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<OptionSpec, String> {
        let parts = text.split_once('=').and_then(|(name, value)| Some((name.split_once('.')?, value)));
        let Some(((function, name), value)) =
            parts.filter(|((one, two), _)| !one.is_empty() && !two.is_empty())
        else {
            return Err(format!(
                "`{text}` is no option; allowed are FUNCTION.OPTION=VALUE, as cache.bytes_max=64M"
            ));
        };
        Ok(OptionSpec { function: function.to_owned(), name: name.to_owned(), value: value.parse()? })
    }
}

impl fmt::Display for OptionSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}={}", self.function, self.name, self.value)
    }
}

/// On which processor a log is written: `disk`, the one that its disk interrupts if that is one; `any`; or a number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Word", into = "String")]
pub enum LogProcessor {
    /// The one that the disk interrupts.
    #[default]
    Disk,
    /// Whichever the system chooses.
    Any,
    /// This one.
    Number(usize),
}
as_text!(LogProcessor);

impl FromStr for LogProcessor {
    type Err = String;

    fn from_str(text: &str) -> Result<LogProcessor, String> {
        match text {
            "disk" => Ok(LogProcessor::Disk),
            "any" => Ok(LogProcessor::Any),
            number => number.parse().map(LogProcessor::Number).map_err(|_| {
                format!("`{text}` is no processor; allowed are disk, any, or a number such as 1")
            }),
        }
    }
}

impl fmt::Display for LogProcessor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LogProcessor::Disk => f.write_str("disk"),
            LogProcessor::Any => f.write_str("any"),
            LogProcessor::Number(number) => write!(f, "{number}"),
        }
    }
}

/// Bits per second: `100M` or `1G`, as on the label of a cable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Word", into = "String")]
pub struct BitRate(pub u64);
as_text!(BitRate);

const DECIMAL_UNITS: [(char, u64); 3] = [('G', 1_000_000_000), ('M', 1_000_000), ('K', 1_000)];

impl FromStr for BitRate {
    type Err = String;

    fn from_str(text: &str) -> Result<BitRate, String> {
        let unit = DECIMAL_UNITS.iter().find(|(name, _)| text.to_uppercase().ends_with(*name));
        let digits = unit.map_or(text, |_| &text[..text.len() - 1]);
        let bits =
            digits.parse::<u64>().ok().and_then(|count| count.checked_mul(unit.map_or(1, |(_, bits)| *bits)));
        let bits = bits.filter(|bits| *bits > 0);
        bits.map(BitRate).ok_or_else(|| {
            format!("`{text}` is no rate; allowed are bits per second, such as 500K, 100M, 1G")
        })
    }
}

impl fmt::Display for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A flag's address, which has to have a port.
pub fn socket_address(text: &str) -> Result<SocketAddr, String> {
    text.parse()
        .map_err(|_| format!("`{text}` is no address; allowed is IP:PORT, for instance 127.0.0.1:9100"))
}

/// An address with a port, which is [`PORT_DEFAULT`] if not named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Word", into = "String")]
pub struct Address(pub SocketAddr);
as_text!(Address);

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Address, String> {
        let address =
            text.parse().or_else(|_| text.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, PORT_DEFAULT)));
        address.map(Address).map_err(|_| {
            format!("`{text}` is no address; allowed are IP and IP:PORT, such as 10.0.0.2:{PORT_DEFAULT}")
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A device as a server knows it: `ID=IP:PORT`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Word", into = "String")]
pub struct DeviceSpec {
    /// Its name in the cluster.
    pub id: u16,
    /// Its control address.
    pub address: Address,
}
as_text!(DeviceSpec);

impl FromStr for DeviceSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<DeviceSpec, String> {
        let parsed = text.split_once('=').and_then(|(id, address)| {
            // No device has the number 0.
            let id = id.parse().ok().filter(|id| *id != 0)?;
            Some(DeviceSpec { id, address: address.parse().ok()? })
        });
        parsed.ok_or_else(|| {
            format!(
                "`{text}` is no device; allowed is ID=IP[:PORT] with an ID from 1 to {}, such as \
                 1=10.0.0.254:{PORT_DEFAULT}",
                u16::MAX
            )
        })
    }
}

impl fmt::Display for DeviceSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.id, self.address)
    }
}

/// Where a Redis or Valkey listens: `127.0.0.1:PORT` or `unix:PATH`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Word", into = "String")]
pub struct Redis(pub RedisAddress);
as_text!(Redis);

impl FromStr for Redis {
    type Err = String;

    fn from_str(text: &str) -> Result<Redis, String> {
        text.parse().map(Redis)
    }
}

impl fmt::Display for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What a proxy is called among several: in messages, in metrics, in /healthz.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Word", into = "String")]
pub struct ProxyName(String);
as_text!(ProxyName);

impl FromStr for ProxyName {
    type Err = String;

    fn from_str(text: &str) -> Result<ProxyName, String> {
        if !is_plain_name(text) {
            return Err(format!("`{text}` is no name for a proxy; {PLAIN_NAME_RULE}"));
        }
        Ok(ProxyName(text.to_owned()))
    }
}

impl fmt::Display for ProxyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The tier asked of the devices: `none`, `ram:3`, `disk`, `ram:3+disk`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Word", into = "String")]
pub struct Asked(pub Tier);
as_text!(Asked);

impl FromStr for Asked {
    type Err = String;

    fn from_str(text: &str) -> Result<Asked, String> {
        text.parse().map(Asked).map_err(|error: TierError| error.to_string())
    }
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Where call records go: a file, or `http://HOST:PORT` of an OTLP collector.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Word", into = "String")]
pub enum TraceTarget {
    /// A file of OTLP JSON lines.
    File(PathBuf),
    /// A collector.
    Endpoint(Endpoint),
}
as_text!(TraceTarget);

impl FromStr for TraceTarget {
    type Err = String;

    fn from_str(text: &str) -> Result<TraceTarget, String> {
        if text.contains("://") {
            return text.parse().map(TraceTarget::Endpoint).map_err(|error: EndpointError| error.to_string());
        }
        if text.is_empty() {
            return Err("an empty name is no file; allowed are FILE and http://HOST:PORT".into());
        }
        Ok(TraceTarget::File(text.into()))
    }
}

impl fmt::Display for TraceTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TraceTarget::File(path) => path.display().fmt(f),
            TraceTarget::Endpoint(endpoint) => endpoint.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse<T: FromStr<Err = String>>(text: &str) -> Result<T, String> {
        text.parse()
    }

    #[test]
    fn times_have_a_unit_and_are_written_as_they_are_read() {
        for (text, nanos) in [("500us", 500_000), ("5ms", 5_000_000), ("1s", 1_000_000_000)] {
            let span: Span = text.parse().expect(text);
            assert_eq!((span.0, span.to_string()), (Nanos(nanos), text.to_owned()));
        }
        assert_eq!("2000ms".parse::<Span>().map(|span| span.to_string()), Ok("2s".to_owned()));
        for wrong in ["", "5", "ms", "-1ms", "5 ms", "5m", "99999999999999999999s", "18446744073710s"] {
            let said = wrong.parse::<Span>().expect_err(wrong);
            assert!(said.contains("500us, 5ms, 1s"), "{said}");
        }
    }

    #[test]
    fn words_are_written_as_they_are_read() {
        for text in ["ram:/dev/shm/a", "pmem:/mnt/pmem/a:1G", "disk:/var/a b:64M", "disk:/odd:name"] {
            assert_eq!(parse::<LogSpec>(text).expect(text).to_string(), text);
        }
        for text in ["0", "1023", "64K", "3G", "1025M"] {
            assert_eq!(parse::<Size>(text).expect(text).to_string(), text);
        }
        for text in ["none", "ram:1", "disk", "ram:3+disk"] {
            assert_eq!(parse::<Asked>(text).expect(text).to_string(), text);
        }
        for text in ["127.0.0.1:6379", "[::1]:6379", "unix:/run/redis.sock"] {
            assert_eq!(parse::<Redis>(text).expect(text).to_string(), text);
        }
        assert_eq!(
            parse::<OptionSpec>("cache.bytes_max=65536K").expect("an option").to_string(),
            "cache.bytes_max=64M"
        );
        for text in ["cache.bytes_max", "bytes_max=64M", "cache.=1", "cache.bytes_max=some"] {
            assert!(parse::<OptionSpec>(text).is_err(), "{text}");
        }
        for text in ["sessions", "2-b"] {
            assert_eq!(parse::<ProxyName>(text).expect(text).to_string(), text);
        }
        for text in ["/tmp/trace.jsonl", "http://127.0.0.1:4318/v1/traces"] {
            assert_eq!(parse::<TraceTarget>(text).expect(text).to_string(), text);
        }
        assert_eq!(parse::<DeviceSpec>("7=10.0.0.1").expect("a device").to_string(), "7=10.0.0.1:51000");
        assert_eq!(parse::<Address>("10.0.0.1").expect("an address").to_string(), "10.0.0.1:51000");
        assert_eq!(parse::<BitRate>("100M"), Ok(BitRate(100_000_000)));
        assert_eq!(parse::<LogSpec>("disk:/a:1K").expect("a log").size, Some(Size(1_024)));
    }

    #[test]
    fn a_wrong_word_is_answered_with_what_is_allowed() {
        let wrong = [
            parse::<LogSpec>("tape:/x").map(drop),
            parse::<LogSpec>("ram:").map(drop),
            parse::<LogSpec>("disk:/x:10T").map(drop),
            parse::<LogSpec>("disk:/x:99999999999G").map(drop),
            parse::<LogSpec>("ram:/x:-1").map(drop),
            parse::<Size>("12X").map(drop),
            parse::<Size>("99999999999G").map(drop),
            parse::<BitRate>("0").map(drop),
            parse::<Address>("localhost").map(drop),
            parse::<DeviceSpec>("10.0.0.1").map(drop),
            parse::<DeviceSpec>("70000=10.0.0.1").map(drop),
            parse::<DeviceSpec>("0=10.0.0.1").map(drop),
            parse::<TraceTarget>("").map(drop),
            parse::<Asked>("tape").map(drop),
            parse::<ProxyName>("Sessions").map(drop),
            parse::<ProxyName>("a:1").map(drop),
            socket_address("9100").map(drop),
        ];
        for result in wrong {
            let problem = result.expect_err("it is wrong");
            assert!(problem.contains("allowed"), "{problem}");
        }
        let bare = parse::<Redis>("10.0.0.1").expect_err("it has no port");
        assert!(bare.contains("127.0.0.1:6379"), "{bare}");
        let secure = parse::<TraceTarget>("https://a").expect_err("TLS is not spoken");
        assert!(secure.contains("http://"), "{secure}");
    }
}
