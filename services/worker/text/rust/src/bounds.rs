// SPDX-License-Identifier: Apache-2.0
//! Bounds for minijinja's filters and methods that can make a long text or list of a short one in one
//! step. They work as minijinja's, but refuse a result beyond the bound, so that a few of them in a row
//! exhaust neither memory nor time.

use std::fmt::{self, Write};

use minijinja::value::{Kwargs, Rest, StringInput, Value};
use minijinja::{filters, Environment, Error, ErrorKind, State};

/// Most bytes of the text that one filter or method makes, and of a whole rendering.
pub const MAX_TEXT_BYTES: usize = if cfg!(fuzzing) { 1 << 20 } else { 32 << 20 };
/// Most items of a list that one filter makes or reads.
const MAX_ITEMS: usize = if cfg!(fuzzing) { 1 << 16 } else { 1 << 20 };

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
        check_format('%', format.as_str().unwrap_or_default(), &args)?;
        filters::format(state, format, args)
    });
    environment.add_filter("list", |state: &State, value: Value| {
        check_items(value.len())?;
        filters::list(state, value)
    });
    environment.add_filter("batch", division(filters::batch));
    environment.add_filter("slice", division(filters::slice));
}

/// A filter that divides a list.
fn division(
    filter: fn(&State, Value, usize, Option<Value>) -> Result<Value, Error>,
) -> impl Fn(&State, Value, usize, Option<Value>) -> Result<Value, Error> {
    move |state, value, count, fill| {
        check_items(value.len())?;
        check_items(Some(count))?;
        filter(state, value, count, fill)
    }
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

/// Calls the bounded version of a string's method, where this module has one; else only checks the size
/// of the result.
pub fn method(text: &str, name: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    match (name, args) {
        ("join", [values]) => return join(text, values.try_iter()?).map(Some),
        ("replace", [from, to, ..]) => {
            if let (Some(from), Some(to)) = (from.as_str(), to.as_str()) {
                check_replace(text, from, to)?;
            }
        }
        ("format", _) => check_format('{', text, args)?,
        _ => {}
    }
    Ok(None)
}

fn join(joiner: &str, values: impl Iterator<Item = Value>) -> Result<Value, Error> {
    let mut text = Text(String::new());
    for (i, value) in values.enumerate() {
        check_items(Some(i))?;
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

/// `style` is the character that begins a conversion, '%' or '{'. Each conversion is as wide as its
/// numbers say, or as the longest argument is.
fn check_format(style: char, format: &str, args: &[Value]) -> Result<(), Error> {
    let longest = args.iter().map(length).max().unwrap_or(0);
    let mut total = format.len();
    let mut rest = format;
    while let Some(begin) = rest.find(style) {
        rest = &rest[begin + 1..];
        if let Some(escaped) = rest.strip_prefix(style) {
            rest = escaped;
            continue;
        }
        let is_end = |c: char| if style == '%' { c.is_alphabetic() || c == '%' } else { c == '}' };
        let (spec, after) = rest.split_at(rest.find(is_end).unwrap_or(rest.len()));
        rest = after;
        // A format's number before the colon is that of an argument.
        let numbers = if style == '{' { spec.split_once(':').map_or("", |(_, n)| n) } else { spec };
        total = total.saturating_add(longest);
        for digits in numbers.split(|c: char| !c.is_ascii_digit()).filter(|run| !run.is_empty()) {
            total = total.saturating_add(digits.parse().unwrap_or(usize::MAX));
        }
        check(Some(total))?;
    }
    Ok(())
}

/// The length of a printed value, as far as it matters.
fn length(value: &Value) -> usize {
    if let Some(text) = value.as_str() {
        return text.len();
    }
    let mut text = Text(String::new());
    match write!(text, "{value}") {
        Ok(()) => text.0.len(),
        Err(_) => usize::MAX,
    }
}

fn check_items(items: Option<usize>) -> Result<(), Error> {
    if items.unwrap_or(0) <= MAX_ITEMS {
        return Ok(());
    }
    let message = format!("it takes more than {MAX_ITEMS} items");
    Err(Error::new(ErrorKind::InvalidOperation, message))
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
