//! What must come of given bytes, case by case (vectors.txt), on each way that decodes.

use codec_peers::every::every::{kinds, three, two};
use codec_peers::ways::again;
use scotfree_transform::DecodeError;

const VECTORS: &str = include_str!("vectors.txt");

/// A case: a type, its bytes, and what must come of them.
struct Case<'v> {
    of: &'v str,
    bytes: Vec<u8>,
    expected: Result<Vec<u8>, &'v str>,
}

fn case(line: &str) -> Case<'_> {
    let (input, expected) = line.split_once(" => ").unwrap();
    let (of, bytes) = input.split_once(' ').unwrap();
    let expected = match expected.strip_prefix("! ") {
        Some(error) => Err(error),
        None => Ok(hexadecimal(expected)),
    };
    Case { of, bytes: hexadecimal(bytes), expected }
}

fn hexadecimal(text: &str) -> Vec<u8> {
    let pairs = text.split(' ').filter(|pair| *pair != "-");
    pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
}

fn decode(of: &str, bytes: &[u8]) -> Result<Vec<u8>, DecodeError> {
    match of {
        "three.All" => again::<three::All>(bytes),
        "two.Needs" => again::<two::Needs>(bytes),
        "kinds.Packed" => again::<kinds::Packed>(bytes),
        "kinds.Unpacked" => again::<kinds::Unpacked>(bytes),
        "kinds.Maps" => again::<kinds::Maps>(bytes),
        "kinds.Choice" => again::<kinds::Choice>(bytes),
        other => panic!("there is no type {other}"),
    }
}

#[test]
fn of_given_bytes_comes_what_must() {
    let mut wrong = Vec::new();
    for line in VECTORS.lines().filter(|line| line.contains(" => ")) {
        let Case { of, bytes, expected } = case(line);
        let got = decode(of, &bytes).map_err(|error| format!("{error:?}"));
        if got.as_deref().map_err(|error| error.as_str()) != expected.as_deref().map_err(|error| *error) {
            wrong.push(format!("{line}\n    got {got:02x?}"));
        }
    }
    assert!(wrong.is_empty(), "{} cases:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn there_are_cases_of_each_type_and_each_error() {
    for part in ["three.All", "two.Needs", "kinds.Packed", "kinds.Unpacked", "kinds.Maps", "kinds.Choice"] {
        assert!(VECTORS.lines().filter(|line| line.starts_with(part)).count() > 20, "{part}");
    }
    for error in ["Cut", "Overlong", "NotAField", "GroupEnd", "NotUtf8", "Packed", "Missing"] {
        assert!(VECTORS.contains(&format!("=> ! {error} {{")), "{error}");
    }
}
