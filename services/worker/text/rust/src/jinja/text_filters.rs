// SPDX-License-Identifier: Apache-2.0
//! Filters of texts.

use super::Interpreter;
use crate::python::arguments::Arguments;
use crate::python::attributes;
use crate::python::error::{charge_bytes, raised, refused, Result};
use crate::python::operators::{self, escape, Binary};
use crate::python::repr;
use crate::python::str_methods::{change_case, justify, line_ranges, replace, strip};
use crate::python::str_tests::is_space;
use crate::python::text::{Builder, Str};
use crate::python::value::Value;

pub fn apply(
    interpreter: &mut Interpreter,
    name: &str,
    value: Value,
    arguments: Arguments,
) -> Result<Value> {
    let soft = |value: &Value| repr::to_soft_str(value);
    let text = |text: Result<Str>| text.map(Value::Str);
    match name {
        "upper" | "lower" | "capitalize" => {
            arguments.bind("upper", &[])?;
            text(change_case(&soft(&value)?, name))
        }
        "title" => {
            arguments.bind("title", &[])?;
            text(title(&soft(&value)?))
        }
        "trim" => {
            let chars = arguments.bind("trim", &["chars"])?.optional_str(0)?;
            Ok(Value::Str(strip(&soft(&value)?, "strip", chars.as_ref().map(Str::as_str))))
        }
        "center" => {
            let width = arguments.bind("center", &["width"])?.int(0, 80)?;
            let s = soft(&value)?;
            text(justify(&s, "center", width, ' ').map(|text| text.with_markup(s.markup)))
        }
        "replace" => {
            let mut bound = arguments.bind("replace", &["old", "new", "count"])?;
            let (old, new) = (bound.required(0)?, bound.required(1)?);
            let count = bound.take_some(2).unwrap_or(Value::Int(-1));
            let count = count.as_int().ok_or_else(|| raised("replace: count is an integer"))?;
            let (old, new) = (interpreter.to_str(&old)?, interpreter.to_str(&new)?);
            text(replace(&interpreter.to_str(&value)?, old.as_str(), &new, count))
        }
        "indent" => indent(&value, arguments),
        "truncate" => truncate(&value, arguments),
        "wordcount" => {
            arguments.bind("wordcount", &[])?;
            let s = soft(&value)?;
            let is_word = |c: char| c == '_' || c.is_alphanumeric();
            let words = s.as_str().split(|c| !is_word(c)).filter(|word| !word.is_empty());
            Ok(Value::Int(words.count() as i128))
        }
        "striptags" => {
            arguments.bind("striptags", &[])?;
            text(strip_tags(&repr::to_str(&value)?))
        }
        "urlencode" => {
            arguments.bind("urlencode", &[])?;
            text(url_encode(interpreter, &value))
        }
        "xmlattr" => {
            let space = arguments.bind("xmlattr", &["autospace"])?.is_true(0, true);
            text(xml_attributes(&value, space))
        }
        _ => Err(refused(format!("the filter {name}"))),
    }
}

/// Jinja2's own title case: a capital at the start and after white space, brackets and dashes.
fn title(s: &Str) -> Result<Str> {
    let mut first = true;
    if s.as_str().contains('Σ') {
        return Err(refused("title case of a text with the letter Σ"));
    }
    s.map(|c, out| {
        if first {
            out.extend(c.to_uppercase());
        } else {
            out.extend(c.to_lowercase());
        }
        first = is_space(c) || "-({[<".contains(c);
    })
}

fn indent(value: &Value, arguments: Arguments) -> Result<Value> {
    let mut bound = arguments.bind("indent", &["width", "first", "blank"])?;
    let width = bound.take(0).unwrap_or(Value::Int(4));
    let (first, blank) = (bound.is_true(1, false), bound.is_true(2, false));
    let Value::Str(s) = value else {
        // Python's error of adding a new line.
        operators::binary(Binary::Add, value, &Value::str("\n"))?;
        return Err(raised("indent wants a string"));
    };
    let indention = match width {
        Value::Str(s) => s,
        width => match operators::binary(Binary::Mul, &Value::str(" "), &width)? {
            Value::Str(s) => s,
            _ => return Err(raised("indent wants a width")),
        },
    };
    let indention = if s.markup { indention.with_markup(true) } else { indention };
    let mut whole = Builder::default();
    whole.push(s);
    whole.push_str("\n");
    let whole = whole.finish()?;
    let mut out = Builder::default();
    for (index, line) in line_ranges(whole.as_str(), false).into_iter().enumerate() {
        if index > 0 {
            out.push_str("\n");
        }
        let indented = if index == 0 { first } else { blank || !line.is_empty() };
        if indented {
            out.push(&indention);
        }
        out.push_part(&whole, line);
        if out.is_full() {
            break;
        }
    }
    let text = out.finish()?;
    charge_bytes(text.len())?;
    Ok(Value::Str(text.with_markup(s.markup)))
}

fn truncate(value: &Value, arguments: Arguments) -> Result<Value> {
    let mut bound = arguments.bind("truncate", &["length", "killwords", "end", "leeway"])?;
    let length = bound.int(0, 255)?;
    let kill_words = bound.is_true(1, false);
    let end = bound.take(2).unwrap_or_else(|| Value::str("..."));
    let leeway = bound.take_some(3).unwrap_or(Value::Int(5));
    let leeway = leeway.as_int().ok_or_else(|| raised("truncate: leeway is an integer"))?;
    let Some(end_length) = end.length()? else {
        return Err(raised("truncate: end has no len()"));
    };
    let kept = length - end_length as i128;
    if kept < 0 {
        return Err(raised(format!("expected length >= {end_length}, got {length}")));
    }
    if leeway < 0 {
        return Err(raised(format!("expected leeway >= 0, got {leeway}")));
    }
    let Some(given) = value.length()? else {
        return Err(raised(format!("object of type '{}' has no len()", value.type_name())));
    };
    if given as i128 <= length + leeway {
        return Ok(value.clone());
    }
    let cut = attributes::slice(value, [None, Some(Value::Int(kept)), None])?;
    if kill_words {
        return operators::binary(Binary::Add, &cut, &end);
    }
    let Value::Str(cut) = cut else {
        return Err(raised(format!("'{}' object has no attribute 'rsplit'", cut.type_name())));
    };
    let words = cut.as_str().rfind(' ').unwrap_or(cut.len());
    operators::binary(Binary::Add, &Value::Str(cut.slice(0..words)), &end)
}

/// markupsafe's striptags.
fn strip_tags(s: &Str) -> Result<Str> {
    let mut text = s.clone();
    for (begin, end) in [("<!--", "-->"), ("<", ">")] {
        while let Some(start) = text.as_str().find(begin) {
            charge_bytes(text.len())?;
            let Some(stop) = text.as_str()[start..].find(end) else { break };
            let mut out = Builder::default();
            out.push_part(&text, 0..start);
            out.push_part(&text, start + stop + end.len()..text.len());
            text = out.finish()?;
        }
    }
    let mut out = Builder::default();
    let whole = text.as_str();
    let words = whole.split(is_space).filter(|word| !word.is_empty());
    for (index, word) in words.enumerate() {
        if index > 0 {
            out.push_str(" ");
        }
        let begin = word.as_ptr() as usize - whole.as_ptr() as usize;
        out.push_part(&text, begin..begin + word.len());
    }
    let text = out.finish()?;
    if text.as_str().contains('&') {
        return Err(refused("striptags of a text with &"));
    }
    Ok(text)
}

fn url_quote(s: &Str, for_query: bool) -> Result<Str> {
    s.map(|c, out| match c {
        c if c.is_ascii_alphanumeric() || "_.-~".contains(c) => out.push(c),
        '/' if !for_query => out.push('/'),
        ' ' if for_query => out.push('+'),
        c => {
            for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                out.push_str(&format!("%{byte:02X}"));
            }
        }
    })
}

fn url_encode(interpreter: &mut Interpreter, value: &Value) -> Result<Str> {
    let iterable = matches!(
        value,
        Value::Undefined(_)
            | Value::List(_)
            | Value::Tuple(_)
            | Value::Dict(_)
            | Value::View(..)
            | Value::Range(_)
            | Value::Iterator(_)
    );
    if !iterable {
        return url_quote(&repr::to_str(value)?, false);
    }
    let pairs = super::list_filters::pairs_of(value).unwrap_or_else(|| value.clone());
    let pairs = interpreter.collect(&pairs)?;
    let mut out = Builder::default();
    for (index, pair) in pairs.items.iter().enumerate() {
        let pair = interpreter.collect(pair)?;
        let [key, item] = pair.items.as_slice() else {
            return Err(raised("urlencode wants pairs"));
        };
        if index > 0 {
            out.push_str("&");
        }
        out.push(&url_quote(&repr::to_str(key)?, true)?);
        out.push_str("=");
        out.push(&url_quote(&repr::to_str(item)?, true)?);
    }
    out.finish()
}

fn xml_attributes(value: &Value, auto_space: bool) -> Result<Str> {
    let dict = match value {
        Value::Dict(dict) => dict,
        Value::Undefined(missing) => return Err(missing.error()),
        other => {
            let kind = other.type_name();
            return Err(raised(format!("'{kind}' object has no attribute 'items'")));
        }
    };
    let mut out = Builder::default();
    for (key, item) in dict.entries() {
        if matches!(item, Value::None | Value::Undefined(_)) {
            continue;
        }
        let Value::Str(name) = key else {
            return Err(raised("expected string or bytes-like object"));
        };
        let forbidden = |c: char| matches!(c, ' ' | '\t'..='\r' | '/' | '>' | '=');
        if name.as_str().contains(forbidden) {
            return Err(raised("Invalid character in attribute name"));
        }
        if out.len() > 0 || auto_space {
            out.push_str(" ");
        }
        out.push(&escape(name)?);
        out.push_str("=\"");
        out.push(&escape(&repr::to_soft_str(item)?)?);
        out.push_str("\"");
    }
    out.finish()
}
