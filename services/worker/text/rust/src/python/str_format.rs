// SPDX-License-Identifier: Apache-2.0
//! str.format and str.format_map, as the sandbox of Jinja2 does them: attributes are looked up as a
//! template's own.

use super::arguments::Arguments;
use super::attributes;
use super::error::{charge, charge_bytes, raised, refused, Result};
use super::repr;
use super::text::{Builder, Str};
use super::value::Value;

/// text.format(*positional, **named)
pub fn call(text: &Str, arguments: &Arguments) -> Result<Str> {
    if text.markup {
        return Err(refused("str.format of a Markup"));
    }
    let mut formatter = Formatter { arguments, next: 0, numbered: false };
    let result = formatter.format(text, 3)?;
    charge_bytes(result.len())?;
    Ok(result)
}

struct Formatter<'a> {
    arguments: &'a Arguments,
    /// The number of the next field without a name.
    next: usize,
    /// Fields have numbers of their own.
    numbered: bool,
}

impl Formatter<'_> {
    fn format(&mut self, format: &Str, depth: usize) -> Result<Str> {
        if depth == 0 {
            return Err(raised("Max string recursion exceeded"));
        }
        let text = format.as_str();
        let mut out = Builder::default();
        let mut at = 0;
        while let Some(found) = text[at..].find(['{', '}']) {
            charge(1)?;
            let brace = at + found;
            out.push_part(format, at..brace);
            if text[brace + 1..].starts_with(&text[brace..=brace]) {
                out.push_part(format, brace..brace + 1);
                at = brace + 2;
                continue;
            }
            if text[brace..].starts_with('}') {
                return Err(raised("Single '}' encountered in format string"));
            }
            at = self.field(format, brace + 1, depth, &mut out)?;
            if out.is_full() {
                break;
            }
        }
        out.push_part(format, at.min(text.len())..text.len());
        out.finish()
    }

    /// Adds a field whose text begins at `begin`; returns where it ends.
    fn field(
        &mut self,
        format: &Str,
        begin: usize,
        depth: usize,
        out: &mut Builder,
    ) -> Result<usize> {
        let text = format.as_str();
        let (mut end, mut nesting, mut bracket) = (begin, 1, false);
        let (mut name_end, mut in_spec) = (None, false);
        for (offset, c) in text[begin..].char_indices() {
            end = begin + offset;
            match c {
                '[' if !in_spec => bracket = true,
                ']' if !in_spec => bracket = false,
                _ if bracket => {}
                '{' if !in_spec => {
                    return Err(raised("unexpected '{' in field name"));
                }
                '{' => nesting += 1,
                '}' => nesting -= 1,
                ':' | '!' if !in_spec => {
                    name_end = Some(end);
                    in_spec = true;
                }
                _ => {}
            }
            if nesting == 0 {
                break;
            }
        }
        if nesting > 0 {
            return Err(raised("expected '}' before end of string"));
        }
        let name_end = name_end.unwrap_or(end);
        let name = &text[begin..name_end];
        let mut rest = name_end..end;
        let mut conversion = None;
        if text[rest.clone()].starts_with('!') {
            let mut chars = text[rest.start + 1..end].chars();
            let Some(kind) = chars.next() else {
                return Err(raised("end of string while looking for conversion specifier"));
            };
            conversion = Some(kind);
            rest.start += 1 + kind.len_utf8();
            if rest.start < end && !text[rest.clone()].starts_with(':') {
                return Err(raised("expected ':' after conversion specifier"));
            }
        }
        if text[rest.clone()].starts_with(':') {
            rest.start += 1;
        }
        let value = self.value(name)?;
        let value = match conversion {
            None => value,
            Some('s') => Value::Str(repr::to_str(&value)?),
            Some('r') => Value::Str(repr::repr(&value)?),
            Some('a') => Value::Str(repr::ascii(&value)?),
            Some(kind) => return Err(raised(format!("Unknown conversion specifier {kind}"))),
        };
        let specification = self.format(&format.slice(rest), depth - 1);
        let specification = match specification {
            Ok(specification) => specification,
            Err(error) => return Err(error),
        };
        out.push(&super::format::format(&value, specification.as_str())?);
        Ok(end + 1)
    }

    fn value(&mut self, name: &str) -> Result<Value> {
        let first_end = name.find(['.', '[']).unwrap_or(name.len());
        let (first, mut rest) = name.split_at(first_end);
        let mut value = if first.is_empty() || first.bytes().all(|b| b.is_ascii_digit()) {
            let index = if first.is_empty() {
                if self.numbered {
                    return Err(raised("cannot switch from manual field specification"));
                }
                self.next += 1;
                self.next - 1
            } else {
                if self.next > 0 {
                    return Err(raised("cannot switch from automatic field numbering"));
                }
                self.numbered = true;
                first.parse().unwrap_or(usize::MAX)
            };
            let value = self.arguments.positional.get(index).cloned();
            value.ok_or_else(|| {
                raised(format!("Replacement index {index} out of range for positional args tuple"))
            })?
        } else {
            let named = self.arguments.named.iter().find(|(key, _)| key.as_str() == first);
            named
                .map(|(_, value)| value.clone())
                .ok_or_else(|| raised(format!("KeyError: '{first}'")))?
        };
        while !rest.is_empty() {
            if let Some(after) = rest.strip_prefix('.') {
                let end = after.find(['.', '[']).unwrap_or(after.len());
                if end == 0 {
                    return Err(raised("Empty attribute in format string"));
                }
                value = attributes::attribute(&value, &after[..end])?;
                rest = &after[end..];
            } else if let Some(after) = rest.strip_prefix('[') {
                let Some(end) = after.find(']') else {
                    return Err(raised("Missing ']' in format string"));
                };
                let key = &after[..end];
                if key.is_empty() {
                    return Err(raised("Empty attribute in format string"));
                }
                let key = match key.parse::<i128>() {
                    Ok(index) if key.bytes().all(|b| b.is_ascii_digit()) => Value::Int(index),
                    _ => Value::str(key),
                };
                value = attributes::item(&value, &key)?;
                rest = &after[end + 1..];
            } else {
                return Err(raised("Only '.' or '[' may follow ']' in format field specifier"));
            }
        }
        Ok(value)
    }
}
