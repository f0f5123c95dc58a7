//! How health speaks of a server that is there and is not used.

/// Each has the error's first word, which tells a wrong password from a right that is missing.
macro_rules! texts {
    ($($code:literal),*) => {
        [$((
            $code,
            concat!("the Redis server keeps the proxy out, or takes no writes (", $code, "); see the alarm"),
        )),*]
    };
}

/// By the first words of errors.
const TEXTS: [(&str, &str); 10] = texts![
    "WRONGPASS",
    "NOAUTH",
    "NOPERM",
    "DENIED",
    "NOREPLICAS",
    "READONLY",
    "MASTERDOWN",
    "MISCONF",
    "OOM",
    "WRONGTYPE"
];
/// Where the server has not answered by an error: its role, or how it is set up.
const OTHER: &str = "the Redis server keeps the proxy out, or takes no writes; see the alarm";

/// For a line of health, by what the operator was told.
pub(super) fn text(said: &str) -> &'static str {
    let mut words = said.split(|c: char| !c.is_ascii_uppercase());
    let found = words.find_map(|word| TEXTS.iter().find(|(code, _)| *code == word));
    found.map_or(OTHER, |(_, text)| text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_word_of_the_refusal_is_named() {
        let at = "the Redis server at unix:redis.sock cannot be used: ";
        for (said, code) in [
            ("it answers `WRONGPASS invalid username-password pair`; put the password", "(WRONGPASS)"),
            ("it refuses what the log holds: NOPERM this user; nothing was given up", "(NOPERM)"),
            ("it refuses what the log holds: NOREPLICAS Not enough good replicas", "(NOREPLICAS)"),
        ] {
            assert!(text(&format!("{at}{said}")).contains(code), "{said}");
        }
        assert_eq!(text("the server's role is `slave`; redis-cli REPLICAOF NO ONE"), OTHER);
    }
}
