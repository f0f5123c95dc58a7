//! A .thrift file as words, numbers, texts and signs, each with its line.

use super::ThriftError;

/// What a part of a file is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token {
    /// A keyword or name, with dots where it has such.
    Word(String),
    /// A whole number.
    Number(i64),
    /// A number that is not whole: nobody asks for its value.
    Real,
    /// What stands in quotes.
    Text(String),
    Sign(char),
    End,
}

impl std::fmt::Display for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Token::Word(word) => write!(f, "`{word}`"),
            Token::Number(number) => write!(f, "`{number}`"),
            Token::Real => f.write_str("a number that is not whole"),
            Token::Text(text) => write!(f, "{text:?}"),
            Token::Sign(sign) => write!(f, "`{sign}`"),
            Token::End => f.write_str("the end of the file"),
        }
    }
}

/// All tokens of a file and their lines; `End` is the last.
pub(super) fn tokens(file: &str, text: &str) -> Result<Vec<(Token, usize)>, ThriftError> {
    let mut lexer = Lexer { file, rest: text.trim_start_matches('\u{feff}'), line: 1 };
    let mut tokens = Vec::new();
    loop {
        lexer.skip()?;
        let line = lexer.line;
        let token = lexer.token()?;
        tokens.push((token.clone(), line));
        if token == Token::End {
            return Ok(tokens);
        }
    }
}

struct Lexer<'t> {
    file: &'t str,
    rest: &'t str,
    line: usize,
}

impl<'t> Lexer<'t> {
    fn expected<T>(&self, expected: &str, found: impl std::fmt::Display) -> Result<T, ThriftError> {
        Err(ThriftError::expected(self.file, self.line, expected, found))
    }

    fn take(&mut self, bytes: usize) -> &'t str {
        let (taken, rest) = self.rest.split_at(bytes);
        self.line += taken.matches('\n').count();
        self.rest = rest;
        taken
    }

    fn take_while(&mut self, of: impl Fn(char) -> bool) -> &'t str {
        self.take(self.rest.find(|letter| !of(letter)).unwrap_or(self.rest.len()))
    }

    /// Passes over spaces and comments.
    fn skip(&mut self) -> Result<(), ThriftError> {
        loop {
            self.take_while(char::is_whitespace);
            if self.rest.starts_with('#') || self.rest.starts_with("//") {
                self.take_while(|letter| letter != '\n');
            } else if self.rest.starts_with("/*") {
                match self.rest[2..].find("*/") {
                    Some(bytes) => drop(self.take(bytes + 4)),
                    None => return self.expected("`*/`, which ends the comment", Token::End),
                }
            } else {
                return Ok(());
            }
        }
    }

    fn token(&mut self) -> Result<Token, ThriftError> {
        let Some(first) = self.rest.chars().next() else { return Ok(Token::End) };
        match first {
            '"' | '\'' => self.text(first),
            '0'..='9' | '+' | '-' | '.' => self.number(),
            '{' | '}' | '(' | ')' | '[' | ']' | '<' | '>' | ',' | ';' | ':' | '=' | '*' | '&' => {
                self.take(1);
                Ok(Token::Sign(first))
            }
            _ if first.is_ascii_alphabetic() || first == '_' => {
                let word = self.take_while(|letter| letter.is_ascii_alphanumeric() || "._".contains(letter));
                if word.split('.').any(str::is_empty) {
                    return self.expected("a name before and behind each dot", format_args!("`{word}`"));
                }
                Ok(Token::Word(word.to_owned()))
            }
            _ => self.expected("a name, a number, a text in quotes or a sign", Token::Sign(first)),
        }
    }

    fn number(&mut self) -> Result<Token, ThriftError> {
        let sign = self.take_while(|letter| "+-".contains(letter));
        let digits = self.take_while(|letter| letter.is_alphanumeric() || letter == '.');
        let hex = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"));
        let whole = match hex {
            Some(hex) => i64::from_str_radix(hex, 16).ok(),
            None => format!("{sign}{digits}").parse().ok(),
        };
        let is_negative = hex.is_some() && sign == "-";
        if let Some(whole) = whole {
            return Ok(Token::Number(if is_negative { -whole } else { whole }));
        }
        // The exponent's sign ends what was taken.
        let mut real = digits.to_owned();
        if real.ends_with(['e', 'E']) && self.rest.starts_with(['+', '-']) {
            real.push_str(self.take(1));
            real.push_str(self.take_while(|letter| letter.is_ascii_digit()));
        }
        if sign.len() < 2 && real.parse::<f64>().is_ok_and(f64::is_finite) {
            return Ok(Token::Real);
        }
        self.expected("a number", format!("`{sign}{real}`"))
    }

    fn text(&mut self, quote: char) -> Result<Token, ThriftError> {
        self.take(1);
        let mut text = String::new();
        loop {
            text.push_str(self.take_while(|letter| letter != quote && letter != '\\'));
            if self.rest.is_empty() {
                return self.expected("the text's end", Token::End);
            }
            let is_end = self.take(1) != "\\";
            if is_end {
                return Ok(Token::Text(text));
            }
            let Some(escaped) = self.rest.chars().next() else { continue };
            self.take(escaped.len_utf8());
            text.push(match escaped {
                'n' => '\n',
                't' => '\t',
                'r' => '\r',
                other => other,
            });
        }
    }
}
