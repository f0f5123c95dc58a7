//! A .thrift file as what it defines.
//!
//! Values of constants and defaults are read and forgotten, annotations too: nothing that is generated depends on them.

use super::lex::{tokens, Token};
use super::ThriftError;
use scotfree_transform::Need;

/// What a file says.
#[derive(Debug, Default)]
pub(super) struct Document {
    /// As errors name it.
    pub(super) file: String,
    /// Files that it includes, with the lines where it does.
    pub(super) includes: Vec<(String, usize)>,
    /// Scopes and names.
    pub(super) namespaces: Vec<(String, String)>,
    pub(super) typedefs: Vec<Typedef>,
    pub(super) enums: Vec<Enum>,
    pub(super) structs: Vec<Struct>,
    pub(super) services: Vec<Service>,
}

#[derive(Debug)]
pub(super) struct Typedef {
    pub(super) name: String,
    pub(super) of: Said,
    pub(super) line: usize,
}

#[derive(Debug)]
pub(super) struct Enum {
    pub(super) name: String,
    pub(super) values: Vec<(String, i32)>,
    pub(super) line: usize,
}

/// A struct, union or exception.
#[derive(Debug)]
pub(super) struct Struct {
    pub(super) name: String,
    pub(super) fields: Vec<Field>,
    pub(super) is_union: bool,
    pub(super) line: usize,
}

#[derive(Debug)]
pub(super) struct Field {
    pub(super) id: i16,
    pub(super) name: String,
    pub(super) need: Need,
    pub(super) has_default: bool,
    pub(super) of: Said,
    pub(super) line: usize,
}

#[derive(Debug)]
pub(super) struct Service {
    pub(super) name: String,
    pub(super) methods: Vec<Method>,
}

#[derive(Debug)]
pub(super) struct Method {
    pub(super) name: String,
    pub(super) arguments: Vec<Field>,
    /// What it returns; of a oneway method nothing at all.
    pub(super) result: Option<Vec<Field>>,
}

/// A type as it is said, typedefs not followed.
#[derive(Debug, Clone)]
pub(super) enum Said {
    Named(String),
    List(Box<Said>),
    Set(Box<Said>),
    Map(Box<Said>, Box<Said>),
}

/// Containers in containers and values in values, at most so deep.
const DEPTH_MAX: usize = 64;

/// What a file says.
pub(super) fn parse(file: &str, text: &str) -> Result<Document, ThriftError> {
    let mut parser = Parser { file, tokens: tokens(file, text)?, at: 0 };
    let mut document = Document { file: file.to_owned(), ..Document::default() };
    while *parser.peek() != Token::End {
        parser.definition(&mut document)?;
    }
    Ok(document)
}

struct Parser<'t> {
    file: &'t str,
    tokens: Vec<(Token, usize)>,
    at: usize,
}

type Parsed<T> = Result<T, ThriftError>;

impl Parser<'_> {
    fn peek(&self) -> &Token {
        &self.tokens[self.at].0
    }

    fn line(&self) -> usize {
        self.tokens[self.at].1
    }

    fn next(&mut self) -> Token {
        let token = self.peek().clone();
        // `End` stays.
        self.at = (self.at + 1).min(self.tokens.len() - 1);
        token
    }

    fn expected<T>(&self, expected: &str) -> Parsed<T> {
        Err(ThriftError::expected(self.file, self.line(), expected, self.peek()))
    }

    fn takes(&mut self, sign: char) -> bool {
        let is_next = *self.peek() == Token::Sign(sign);
        if is_next {
            self.next();
        }
        is_next
    }

    fn takes_word(&mut self, word: &str) -> bool {
        let is_next = matches!(self.peek(), Token::Word(next) if next == word);
        if is_next {
            self.next();
        }
        is_next
    }

    fn sign(&mut self, sign: char, of: &str) -> Parsed<()> {
        if self.takes(sign) {
            Ok(())
        } else {
            self.expected(&format!("`{sign}` {of}"))
        }
    }

    fn word(&mut self, what: &str) -> Parsed<String> {
        match self.peek().clone() {
            Token::Word(word) => {
                self.next();
                Ok(word)
            }
            _ => self.expected(what),
        }
    }

    /// A name that this file defines: it has no dots.
    fn name(&mut self, what: &str) -> Parsed<String> {
        match self.peek() {
            Token::Word(word) if word.contains('.') => self.expected(what),
            _ => self.word(what),
        }
    }

    fn text(&mut self, what: &str) -> Parsed<String> {
        match self.peek().clone() {
            Token::Text(text) => {
                self.next();
                Ok(text)
            }
            _ => self.expected(what),
        }
    }

    /// What may stand between two of a list.
    fn separator(&mut self) {
        let _ = self.takes(',') || self.takes(';');
    }

    fn definition(&mut self, document: &mut Document) -> Parsed<()> {
        const WHAT: &str = "a definition: `include`, `namespace`, `const`, `typedef`, `enum`, `struct`, `union`, `exception` or `service`";
        let line = self.line();
        let Token::Word(word) = self.peek().clone() else { return self.expected(WHAT) };
        self.next();
        match word.as_str() {
            "include" => document.includes.push((self.text("the file's name, in quotes")?, line)),
            "cpp_include" => drop(self.text("the header's name, in quotes")?),
            "namespace" => {
                let scope = if self.takes('*') { "*".to_owned() } else { self.word("a language, or `*`")? };
                document.namespaces.push((scope, self.word("the namespace's name")?));
                self.annotations()?;
            }
            "const" => {
                self.said(0)?;
                self.name("the constant's name")?;
                self.sign('=', "and the constant's value")?;
                self.value(0)?;
            }
            "typedef" => {
                let of = self.said(0)?;
                document.typedefs.push(Typedef { of, name: self.name("the new type's name")?, line });
                self.annotations()?;
            }
            "enum" => document.enums.push(self.enumeration(line)?),
            "struct" | "union" | "exception" => {
                let name = self.name(&format!("the {word}'s name"))?;
                self.takes_word("xsd_all");
                self.sign('{', "and the fields")?;
                let fields = self.fields('}')?;
                self.annotations()?;
                document.structs.push(Struct { name, fields, is_union: word == "union", line });
            }
            "service" => document.services.push(self.service()?),
            _ => {
                self.at -= 1;
                return self.expected(WHAT);
            }
        }
        self.separator();
        Ok(())
    }

    fn enumeration(&mut self, line: usize) -> Parsed<Enum> {
        let name = self.name("the enum's name")?;
        self.sign('{', "and the enum's values")?;
        let (mut values, mut next) = (Vec::new(), Some(0_i32));
        while !self.takes('}') {
            let value = self.name("a value's name, or `}`")?;
            if self.takes('=') {
                next = Some(self.number("a number of 32 bits")?);
            }
            let Some(number) = next else {
                return self.expected("a number: the next one has more than 32 bits");
            };
            values.push((value, number));
            next = number.checked_add(1);
            self.annotations()?;
            self.separator();
        }
        self.annotations()?;
        Ok(Enum { name, values, line })
    }

    fn number<N: TryFrom<i64>>(&mut self, what: &str) -> Parsed<N> {
        let number = match self.peek() {
            Token::Number(number) => N::try_from(*number).ok(),
            _ => None,
        };
        match number {
            Some(number) => {
                self.next();
                Ok(number)
            }
            None => self.expected(what),
        }
    }

    /// Fields up to a sign, which is taken. Those without an id get the next one below zero.
    fn fields(&mut self, end: char) -> Parsed<Vec<Field>> {
        let (mut fields, mut implicit) = (Vec::new(), 0_i16);
        while !self.takes(end) {
            let line = self.line();
            let id = if let Token::Number(_) = self.peek() {
                let id = self.number("an id of 16 bits")?;
                self.sign(':', "behind the field's id")?;
                id
            } else {
                let Some(next) = i16::checked_sub(implicit, 1) else {
                    return self.expected("an id: those below zero are all taken");
                };
                implicit = next;
                next
            };
            let need = if self.takes_word("required") {
                Need::Required
            } else if self.takes_word("optional") {
                Need::Optional
            } else {
                Need::Default
            };
            if !matches!(self.peek(), Token::Word(_)) {
                return self.expected(&format!("a field's type, or `{end}`"));
            }
            let of = self.said(0)?;
            self.takes('&');
            let name = self.name("the field's name")?;
            let has_default = self.takes('=');
            if has_default {
                self.value(0)?;
            }
            self.annotations()?;
            self.separator();
            fields.push(Field { id, name, need, has_default, of, line });
        }
        Ok(fields)
    }

    fn service(&mut self) -> Parsed<Service> {
        let name = self.name("the service's name")?;
        if self.takes_word("extends") {
            self.word("the name of the service that it extends")?;
        }
        self.sign('{', "and the methods")?;
        let mut methods = Vec::new();
        while !self.takes('}') {
            methods.push(self.method()?);
        }
        self.annotations()?;
        Ok(Service { name, methods })
    }

    fn method(&mut self) -> Parsed<Method> {
        let line = self.line();
        let is_oneway = self.takes_word("oneway") || self.takes_word("async");
        let returned = if self.takes_word("void") { None } else { Some(self.said(0)?) };
        let name = self.name("the method's name")?;
        self.sign('(', "and the method's arguments")?;
        let arguments = self.fields(')')?;
        let mut result = Vec::new();
        let optional = |field: Field| Field { need: Need::Optional, ..field };
        result.extend(returned.map(|of| {
            optional(Field {
                id: 0,
                name: "success".to_owned(),
                need: Need::Optional,
                has_default: false,
                of,
                line,
            })
        }));
        if self.takes_word("throws") {
            self.sign('(', "and the exceptions")?;
            result.extend(self.fields(')')?.into_iter().map(optional));
        }
        self.annotations()?;
        self.separator();
        if is_oneway && !result.is_empty() {
            return Err(ThriftError::expected(
                self.file,
                line,
                "`void` and no `throws`, as the method is oneway",
                format_args!("what `{name}` gives"),
            ));
        }
        Ok(Method { name, arguments, result: (!is_oneway).then_some(result) })
    }

    /// A type.
    fn said(&mut self, depth: usize) -> Parsed<Said> {
        if depth > DEPTH_MAX {
            return self.expected("fewer containers within each other");
        }
        let word = self.word("a type")?;
        let is_container = matches!(word.as_str(), "list" | "set" | "map");
        if is_container {
            self.cpp_type()?;
            self.sign('<', &format!("and what the {word} is of"))?;
        }
        let of = match word.as_str() {
            "map" => {
                let key = self.said(depth + 1)?;
                self.sign(',', "between the types of keys and values")?;
                Said::Map(Box::new(key), Box::new(self.said(depth + 1)?))
            }
            "list" => Said::List(Box::new(self.said(depth + 1)?)),
            "set" => Said::Set(Box::new(self.said(depth + 1)?)),
            _ => Said::Named(word.clone()),
        };
        if is_container {
            self.sign('>', &format!("at the {word}'s end"))?;
            self.cpp_type()?;
        }
        self.annotations()?;
        Ok(of)
    }

    fn cpp_type(&mut self) -> Parsed<()> {
        if self.takes_word("cpp_type") {
            self.text("a type of C++, in quotes")?;
        }
        Ok(())
    }

    /// A constant value.
    fn value(&mut self, depth: usize) -> Parsed<()> {
        const WHAT: &str = "a value: a number, a text in quotes, a name, `[` or `{`";
        if depth > DEPTH_MAX {
            return self.expected("fewer values within each other");
        }
        match self.peek() {
            Token::Word(_) | Token::Number(_) | Token::Real | Token::Text(_) => drop(self.next()),
            Token::Sign('[') => {
                self.next();
                while !self.takes(']') {
                    self.value(depth + 1)?;
                    self.separator();
                }
            }
            Token::Sign('{') => {
                self.next();
                while !self.takes('}') {
                    self.value(depth + 1)?;
                    self.sign(':', "between a key and its value")?;
                    self.value(depth + 1)?;
                    self.separator();
                }
            }
            Token::Sign(_) | Token::End => return self.expected(WHAT),
        }
        Ok(())
    }

    /// `(key = "value", key)`, if it is there.
    fn annotations(&mut self) -> Parsed<()> {
        if !self.takes('(') {
            return Ok(());
        }
        while !self.takes(')') {
            self.word("an annotation's name, or `)`")?;
            if self.takes('=') {
                self.text("the annotation's value, in quotes")?;
            }
            self.separator();
        }
        Ok(())
    }
}
