// SPDX-License-Identifier: Apache-2.0
//! Lark as llguidance reads it, with the schemas in it checked as those of requests are.

use serde_json::{Deserializer, Value};

use super::schema::CheckedSchema;

/// Brackets within each other.
const MAX_DEPTH: usize = 64;
/// Intersections in a grammar that a client wrote, which is then at most so long: llguidance's work for
/// one is the product of the alternatives.
const MAX_INTERSECTIONS: usize = 2;
const MAX_INTERSECTED_BYTES: usize = 4096;

/// The same grammar, as llguidance is to read it; or why it is refused. `prepare` makes a schema what
/// llguidance gets. What is no Lark at all is left to llguidance to refuse.
pub fn prepare(
    source: &str,
    is_own: bool,
    prepare: impl Fn(Value) -> Value,
) -> Result<String, String> {
    let mut result = String::with_capacity(source.len());
    let mut depth = 0usize;
    let mut num_intersections = 0;
    let mut before = ""; // the last lexeme
    let mut rest = source;
    while let Some(first) = rest.chars().next() {
        let mut size = size_of_lexeme(rest);
        let lexeme = &rest[..size];
        result.push_str(lexeme);
        match lexeme {
            "(" | "[" | "{" => depth += 1,
            "&" => num_intersections += 1,
            ")" | "]" | "}" => depth = depth.saturating_sub(1),
            // These attributes of rules change nothing here, or what a rule matches is taken back.
            "temperature" | "max_tokens" | "stop" | "stop_capture"
                if rest[size..].trim_start().starts_with('=') =>
            {
                return Err(format!("{lexeme}=: not supported"));
            }
            "%json" | "%llguidance" | "%regex" => {
                let (value, value_size) =
                    value_of(&rest[size..]).map_err(|why| format!("{lexeme}: {why}"))?;
                let written = &rest[size..size + value_size];
                match lexeme {
                    "%json" => {
                        let checked =
                            CheckedSchema::in_lark(value).map_err(|why| format!("%json: {why}"))?;
                        result.push(' ');
                        result.push_str(&prepare(checked.schema).to_string());
                    }
                    "%llguidance" if value["allow_invalid_utf8"] == true => {
                        return Err("allow_invalid_utf8: answers are UTF-8".to_owned());
                    }
                    _ => result.push_str(written),
                }
                size += value_size;
            }
            // A number behind it counts what stands before. Behind "&" it takes away from what is
            // UTF-8, as all is that has no complement of its own.
            "~" if before != "&"
                && !rest[size..].trim_start().starts_with(|c: char| c.is_ascii_digit()) =>
            {
                return Err("~: a complement has bytes that are not UTF-8; take it from something \
                            with &, as /[a-z]+/ & ~/no/"
                    .to_owned());
            }
            _ if first == '/' && has_lookahead(lexeme) => {
                return Err("a group must not be named stop".to_owned());
            }
            _ => {}
        }
        if !is_own
            && (num_intersections > MAX_INTERSECTIONS
                || num_intersections > 0 && source.len() > MAX_INTERSECTED_BYTES)
        {
            return Err(format!(
                "more than {MAX_INTERSECTIONS} intersections (&), or any in a grammar of more than \
                 {MAX_INTERSECTED_BYTES} bytes"
            ));
        }
        let is_space = first.is_whitespace() || first == '#' || lexeme.starts_with("//");
        if !is_space {
            before = lexeme;
        }
        if depth > MAX_DEPTH {
            return Err(format!("more than {MAX_DEPTH} brackets within each other"));
        }
        rest = &rest[size..];
    }
    Ok(result)
}

/// llguidance takes the text of such a group out of an answer again.
fn has_lookahead(regex: &str) -> bool {
    regex.contains("(?P<stop>") || regex.contains("(?<stop>")
}

fn value_of(text: &str) -> Result<(Value, usize), String> {
    let mut stream = Deserializer::from_str(text).into_iter();
    match stream.next() {
        Some(Ok(value)) => Ok((value, stream.byte_offset())),
        Some(Err(error)) => Err(format!("not JSON: {error}")),
        None => Err("there is no JSON".to_owned()),
    }
}

/// The bytes of the lexeme or comment that the text begins with; at least one character.
fn size_of_lexeme(text: &str) -> usize {
    let bytes = text.as_bytes();
    let line = || text.find('\n').unwrap_or(text.len());
    let while_byte = |of: fn(&u8) -> bool| bytes.iter().take_while(|b| of(b)).count();
    match bytes[0] {
        b'#' => line(),
        b'/' if bytes.get(1) == Some(&b'/') => line(),
        b'/' | b'"' => size_of_quoted(text),
        b'<' => match text[1..].find(|c: char| c == '<' || c == '>' || c.is_whitespace()) {
            Some(end) if end > 0 && bytes[1 + end] == b'>' => end + 2,
            _ => 1,
        },
        b'%' => 1 + bytes[1..].iter().take_while(|b| b.is_ascii_alphabetic()).count(),
        b'a'..=b'z' | b'A'..=b'Z' | b'_' | b'0'..=b'9' => {
            while_byte(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
        }
        _ => text.chars().next().map_or(1, char::len_utf8),
    }
}

/// A string or a regular expression: up to the same character without a backslash before it.
fn size_of_quoted(text: &str) -> usize {
    let quote = text.as_bytes()[0];
    let mut escaped = false;
    for (index, byte) in text.bytes().enumerate().skip(1) {
        if escaped {
            escaped = false;
        } else if byte == b'\\' {
            escaped = true;
        } else if byte == quote {
            return index + 1;
        }
    }
    text.len()
}
