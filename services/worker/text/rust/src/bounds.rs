// SPDX-License-Identifier: Apache-2.0
//! What makes long texts of short ones, in one step: those of minijinja as they are, but for a bound
//! on what they make, so that a few of them in a row take neither all memory nor all day.

use std::fmt::{self, Write};

use minijinja::value::{Kwargs, Rest, StringInput, Value};
use minijinja::{filters, Environment, Error, ErrorKind, State};

/// Of the text that one filter or method makes.
const MAX_TEXT_BYTES: usize = if cfg!(fuzzing) { 1 << 20 } else { 32 << 20 };
/// Of a width or precision in a format.
const MAX_WIDTH_DIGITS: usize = 6;

pub fn add_to(environment: &mut Environment) {
    environment.add_filter("join", |state: &State, value: &Value, joiner: Option<&Value>| {
        let joiner = joiner.map(|joiner| StringInput::new(state, joiner)).transpose()?;
        let joiner = joiner.as_ref().map_or("", StringInput::as_str);
        let values = value.try_iter().map_err(|e| {
            let message = format!("cannot join value of type {}", value.kind());
            Error::new(ErrorKind::InvalidOperation, message).with_source(e)
        })?;
        join(joiner, values)
    });
    environment.add_filter("replace", |state: &State, value: &Value, from: &Value, to: &Value| {
        let text = |value| StringInput::new(state, value);
        let (value, from, to) = (text(value)?, text(from)?, text(to)?);
        check_replace(value.as_str(), from.as_str(), to.as_str())?;
        filters::replace(state, value, from, to)
    });
    environment.add_filter("indent", indent);
    environment.add_filter("format", |state: &State, format: &Value, args: Rest<Value>| {
        check_format(format.as_str().unwrap_or_default())?;
        filters::format(state, format, args)
    });
}

fn indent(
    value: StringInput<'_>,
    width: Option<usize>,
    first: Option<bool>,
    blank: Option<bool>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    let width = match width {
        Some(width) => Some(width),
        None => kwargs.get("width")?,
    };
    let lines = value.as_str().split('\n').count();
    let spaces = lines.checked_mul(width.unwrap_or(4));
    check(spaces.and_then(|spaces| spaces.checked_add(value.as_str().len())))?;
    filters::indent(value, width, first, blank, kwargs)
}

/// The method of a string, where this module has it; else only checked for what it would make.
pub fn method(text: &str, name: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    match (name, args) {
        ("join", [values]) => return join(text, values.try_iter()?).map(Some),
        ("replace", [from, to, ..]) => {
            if let (Some(from), Some(to)) = (from.as_str(), to.as_str()) {
                check_replace(text, from, to)?;
            }
        }
        ("format", _) => check_format(text)?,
        _ => {}
    }
    Ok(None)
}

fn join(joiner: &str, values: impl Iterator<Item = Value>) -> Result<Value, Error> {
    let mut text = Text(String::new());
    for (i, value) in values.enumerate() {
        let joined = if i > 0 { text.write_str(joiner) } else { Ok(()) };
        let joined = joined.and_then(|()| match value.as_str() {
            Some(item) => text.write_str(item),
            None => write!(text, "{value}"),
        });
        joined.map_err(|_| too_long())?;
    }
    Ok(text.0.into())
}

fn check_replace(text: &str, from: &str, to: &str) -> Result<(), Error> {
    if to.len() <= from.len() {
        return Ok(());
    }
    let more = text.matches(from).count().checked_mul(to.len() - from.len());
    check(more.and_then(|more| more.checked_add(text.len())))
}

/// Of "%…" as of "{…}".
fn check_format(format: &str) -> Result<(), Error> {
    let bytes = format.as_bytes();
    let mut begin = 0;
    for run in bytes.split(|byte| !byte.is_ascii_digit()) {
        let first = begin;
        begin += run.len() + 1;
        if run.len() <= MAX_WIDTH_DIGITS {
            continue;
        }
        let before = &format[..first];
        let of_percent = before
            .trim_end_matches(|c: char| c.is_ascii_digit() || "#-+ .".contains(c))
            .ends_with('%');
        if of_percent || before.rfind('{') > before.rfind('}') {
            return Err(too_long());
        }
    }
    Ok(())
}

fn check(bytes: Option<usize>) -> Result<(), Error> {
    match bytes {
        Some(bytes) if bytes <= MAX_TEXT_BYTES => Ok(()),
        _ => Err(too_long()),
    }
}

fn too_long() -> Error {
    let message = format!("it makes a text of more than {MAX_TEXT_BYTES} bytes");
    Error::new(ErrorKind::InvalidOperation, message)
}

struct Text(String);

impl Write for Text {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        if self.0.len() + more.len() > MAX_TEXT_BYTES {
            return Err(fmt::Error);
        }
        self.0.push_str(more);
        Ok(())
    }
}
