// SPDX-License-Identifier: Apache-2.0
//! Jinja2's lexer with trim_blocks and lstrip_blocks.

use crate::python::error::{raised, refused, Error, Result};
use crate::python::str_tests::is_space;

#[derive(Clone, Debug, PartialEq)]
pub enum Token {
    Data(String),
    VariableBegin,
    VariableEnd,
    BlockBegin,
    BlockEnd,
    Name(String),
    Str(String),
    Int(i128),
    Float(f64),
    Operator(&'static str),
    End,
}

const OPERATORS: [&str; 26] = [
    "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[", "]", "(", ")", "{", "}",
    ">", "<", "=", ".", ":", "|", ",", ";",
];

/// The tokens of a template with the lines that they begin in.
pub fn tokenize(source: &str) -> Result<Vec<(Token, usize)>> {
    let mut text = source.replace("\r\n", "\n").replace('\r', "\n");
    if text.ends_with('\n') {
        text.pop();
    }
    let mut lexer =
        Lexer { text: &text, at: 0, line: 1, counted: 0, line_start: true, tokens: Vec::new() };
    lexer.run()?;
    let line = lexer.line_at(text.len());
    lexer.tokens.push((Token::End, line));
    Ok(lexer.tokens)
}

struct Lexer<'a> {
    text: &'a str,
    at: usize,
    /// The line of the byte `counted`.
    line: usize,
    counted: usize,
    /// The text so far is empty or ends with a line that a tag's end took.
    line_start: bool,
    tokens: Vec<(Token, usize)>,
}

/// How a tag treats the white space before it.
#[derive(Clone, Copy, PartialEq)]
enum Sign {
    Strip,
    Keep,
    Plain,
}

impl<'a> Lexer<'a> {
    fn line_at(&mut self, at: usize) -> usize {
        self.line += self.text[self.counted..at].matches('\n').count();
        self.counted = at;
        self.line
    }

    fn fail(&mut self, at: usize, message: &str) -> Error {
        let line = self.line_at(at.max(self.counted));
        raised(format!("line {line}: {message}"))
    }

    fn push(&mut self, token: Token, at: usize) {
        let line = self.line_at(at);
        self.tokens.push((token, line));
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn run(&mut self) -> Result<()> {
        while self.at < self.text.len() {
            let begin = self.at;
            let found = self.text[begin..]
                .match_indices('{')
                .map(|(at, _)| begin + at)
                .find(|at| matches!(self.text.as_bytes().get(at + 1), Some(b'%' | b'{' | b'#')));
            let Some(found) = found else {
                self.push(Token::Data(self.rest().to_owned()), begin);
                return Ok(());
            };
            let kind = self.text.as_bytes()[found + 1];
            self.at = found + 2;
            let sign = self.sign();
            self.data(begin, found, sign, kind == b'{');
            match kind {
                b'#' => self.comment(found)?,
                b'{' => {
                    self.push(Token::VariableBegin, found);
                    self.tag(found, true)?;
                }
                _ if self.raw(found)? => {}
                _ => {
                    self.push(Token::BlockBegin, found);
                    self.tag(found, false)?;
                }
            }
        }
        Ok(())
    }

    fn sign(&mut self) -> Sign {
        let sign = match self.rest().bytes().next() {
            Some(b'-') => Sign::Strip,
            Some(b'+') => Sign::Keep,
            _ => return Sign::Plain,
        };
        self.at += 1;
        sign
    }

    /// The text before a tag, without the white space that the tag takes.
    fn data(&mut self, begin: usize, end: usize, sign: Sign, is_variable: bool) {
        let text = &self.text[begin..end];
        let kept = match sign {
            Sign::Strip => text.trim_end_matches(is_space),
            Sign::Plain if !is_variable => {
                let line = text.rfind('\n').map_or(0, |at| at + 1);
                let blank = text[line..].chars().all(is_space);
                if blank && (line > 0 || self.line_start) {
                    &text[..line]
                } else {
                    text
                }
            }
            _ => text,
        };
        if !kept.is_empty() {
            self.push(Token::Data(kept.to_owned()), begin);
        }
    }

    /// Goes behind the end of a tag, of which `width` bytes are left.
    fn end_tag(&mut self, strip: bool, take_line: bool, width: usize) {
        self.at += width;
        if strip {
            self.at = self.text.len() - self.rest().trim_start_matches(is_space).len();
        } else if take_line && self.rest().starts_with('\n') {
            self.at += 1;
        }
        self.line_start = self.text[..self.at].ends_with('\n');
    }

    fn comment(&mut self, begin: usize) -> Result<()> {
        let Some(end) = self.rest().find("#}") else {
            return Err(self.fail(begin, "Missing end of comment tag"));
        };
        let sign = self.rest()[..end].bytes().next_back();
        self.at += end;
        self.end_tag(sign == Some(b'-'), sign != Some(b'+'), 2);
        Ok(())
    }

    /// The end of a tag at `at`, if it ends there: (how many bytes, strips, keeps the line).
    fn block_end(&self, at: usize) -> Option<(usize, bool, bool)> {
        let rest = &self.text[at..];
        if rest.starts_with("-%}") {
            Some((3, true, false))
        } else if rest.starts_with("+%}") {
            Some((3, false, true))
        } else if rest.starts_with("%}") {
            Some((2, false, false))
        } else {
            None
        }
    }

    /// `{% raw %}` … `{% endraw %}`, where a block of this kind begins here.
    fn raw(&mut self, begin: usize) -> Result<bool> {
        let word = |text: &'a str, word: &str| -> Option<usize> {
            let trimmed = text.trim_start_matches(is_space);
            let after = trimmed.strip_prefix(word)?.trim_start_matches(is_space);
            Some(text.len() - after.len())
        };
        let Some(behind) = word(self.rest(), "raw") else { return Ok(false) };
        match self.block_end(self.at + behind) {
            Some((_, _, true)) | None => return Ok(false),
            Some((width, strip, _)) => {
                self.at += behind;
                self.end_tag(strip, false, width);
            }
        }
        let content = self.at;
        let mut from = content;
        while let Some(found) = self.text[from..].find("{%") {
            let found = from + found;
            self.at = found + 2;
            let sign = self.sign();
            if let Some(behind) = word(self.rest(), "endraw") {
                if let Some((width, strip, keep)) = self.block_end(self.at + behind) {
                    self.at += behind;
                    let after = self.at;
                    self.data(content, found, sign, false);
                    self.at = after;
                    self.end_tag(strip, !keep, width);
                    return Ok(true);
                }
            }
            from = found + 2;
        }
        Err(self.fail(begin, "Missing end of raw directive"))
    }

    /// The tokens in a tag, and its end.
    fn tag(&mut self, begin: usize, is_variable: bool) -> Result<()> {
        let mut open: Vec<&str> = Vec::new();
        loop {
            self.at = self.text.len() - self.rest().trim_start_matches(is_space).len();
            let rest = self.rest();
            let Some(c) = rest.chars().next() else {
                return Err(self.fail(begin, "the template ends in a tag"));
            };
            if open.is_empty() && self.end_of_tag(is_variable) {
                return Ok(());
            }
            let at = self.at;
            if c.is_ascii_digit() {
                let token = self.number()?;
                self.push(token, at);
            } else if c == '_' || c.is_alphanumeric() {
                let end = rest.find(|c: char| c != '_' && !c.is_alphanumeric());
                self.at += end.unwrap_or(rest.len());
                if !(c == '_' || c.is_alphabetic()) {
                    return Err(self.fail(at, "Invalid character in identifier"));
                }
                self.push(Token::Name(self.text[at..self.at].to_owned()), at);
            } else if c == '\'' || c == '"' {
                let text = self.string(c)?;
                self.push(Token::Str(text), at);
            } else {
                let operator = OPERATORS.iter().find(|operator| rest.starts_with(**operator));
                let Some(operator) = operator else {
                    return Err(self.fail(at, &format!("unexpected char {c:?}")));
                };
                match *operator {
                    "{" => open.push("}"),
                    "(" => open.push(")"),
                    "[" => open.push("]"),
                    "}" | ")" | "]" if open.pop() != Some(*operator) => {
                        return Err(self.fail(at, &format!("unexpected '{operator}'")));
                    }
                    _ => {}
                }
                self.at += operator.len();
                self.push(Token::Operator(operator), at);
            }
        }
    }

    fn end_of_tag(&mut self, is_variable: bool) -> bool {
        let at = self.at;
        if is_variable {
            let (width, strip) = match self.rest() {
                rest if rest.starts_with("-}}") => (3, true),
                rest if rest.starts_with("}}") => (2, false),
                _ => return false,
            };
            self.push(Token::VariableEnd, at);
            self.end_tag(strip, false, width);
            return true;
        }
        let Some((width, strip, keep)) = self.block_end(at) else { return false };
        self.push(Token::BlockEnd, at);
        self.end_tag(strip, !keep, width);
        true
    }

    /// The length of digits with single underscores between them.
    fn digits(text: &str, is_digit: fn(&u8) -> bool) -> usize {
        let bytes = text.as_bytes();
        let mut end = 0;
        while bytes.get(end).is_some_and(is_digit) {
            end += 1;
            let next = end + usize::from(bytes.get(end) == Some(&b'_'));
            if next > end && bytes.get(next).is_some_and(is_digit) {
                end = next;
            }
        }
        end
    }

    fn number(&mut self) -> Result<Token> {
        let rest = self.rest();
        let decimal = |text: &str| Self::digits(text, u8::is_ascii_digit);
        let whole = decimal(rest);
        let after_point = self.text[..self.at].ends_with('.');
        if !after_point {
            let mut end = whole;
            let mut is_float = false;
            if rest[end..].starts_with('.') && decimal(&rest[end + 1..]) > 0 {
                end += 1 + decimal(&rest[end + 1..]);
                is_float = true;
            }
            if let Some(exponent) = rest[end..].strip_prefix(['e', 'E']) {
                let unsigned = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
                if decimal(unsigned) > 0 {
                    end += 1 + exponent.len() - unsigned.len() + decimal(unsigned);
                    is_float = true;
                }
            }
            if is_float {
                self.at += end;
                let value = rest[..end].replace('_', "").parse();
                return Ok(Token::Float(value.map_err(|_| raised("a wrong number"))?));
            }
        }
        let lower = rest.get(..2).unwrap_or_default().to_ascii_lowercase();
        let (base, is_digit): (u32, fn(&u8) -> bool) = match lower.as_str() {
            "0x" => (16, u8::is_ascii_hexdigit),
            "0o" => (8, |b| (b'0'..=b'7').contains(b)),
            "0b" => (2, |b| (b'0'..=b'1').contains(b)),
            _ => (10, u8::is_ascii_digit),
        };
        if base != 10 {
            let digits = rest[2..].strip_prefix('_').unwrap_or(&rest[2..]);
            let count = Self::digits(digits, is_digit);
            if count > 0 {
                self.at += rest.len() - digits.len() + count;
                let digits = digits[..count].replace('_', "");
                let value = i128::from_str_radix(&digits, base);
                return value.map(Token::Int).map_err(|_| crate::python::integer::too_large());
            }
        }
        // Zeros in front of other digits are a number of their own.
        let end = if rest.starts_with('0') { Self::digits(rest, |b| *b == b'0') } else { whole };
        self.at += end;
        let value = rest[..end].replace('_', "").parse();
        value.map(Token::Int).map_err(|_| crate::python::integer::too_large())
    }

    fn string(&mut self, quote: char) -> Result<String> {
        let begin = self.at;
        let mut out = String::new();
        let mut chars = self.text[begin + 1..].char_indices();
        while let Some((at, c)) = chars.next() {
            if c == quote {
                self.at = begin + 1 + at + 1;
                return Ok(out);
            }
            if c != '\\' {
                out.push(c);
                continue;
            }
            let Some((_, escaped)) = chars.next() else { break };
            let simple = match escaped {
                '\n' => continue,
                '\\' | '\'' | '"' => escaped,
                'a' => '\x07',
                'b' => '\x08',
                'f' => '\x0c',
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                'v' => '\x0b',
                '0'..='7' => {
                    let mut code = escaped.to_digit(8).unwrap_or(0);
                    for _ in 0..2 {
                        let next = chars.clone().next().and_then(|(_, c)| c.to_digit(8));
                        let Some(digit) = next else { break };
                        code = code * 8 + digit;
                        chars.next();
                    }
                    char::from_u32(code).unwrap_or('\0')
                }
                'x' | 'u' | 'U' => {
                    let count = match escaped {
                        'x' => 2,
                        'u' => 4,
                        _ => 8,
                    };
                    let mut code = 0u32;
                    for _ in 0..count {
                        let digit = chars.next().and_then(|(_, c)| c.to_digit(16));
                        let Some(digit) = digit else {
                            return Err(self.fail(begin, "truncated escape in a string"));
                        };
                        code = code << 4 | digit;
                    }
                    match char::from_u32(code) {
                        Some(c) => c,
                        None if code < 0x110000 => {
                            return Err(refused("half of a surrogate pair in a string"));
                        }
                        None => return Err(self.fail(begin, "illegal Unicode character")),
                    }
                }
                'N' => return Err(refused("a character by its name (\\N) in a string")),
                other => {
                    out.push('\\');
                    other
                }
            };
            out.push(simple);
        }
        Err(self.fail(begin, "a string without an end"))
    }
}
