// SPDX-License-Identifier: Apache-2.0
//! Python's values where they behave otherwise than minijinja's: printing, generators, and loops.

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::sync::Arc;

use minijinja::value::{
    Enumerator, Kwargs, Object, ObjectExt as _, ObjectRepr, Rest, Value, ValueKind,
};
use minijinja::{filters, Environment, Error, ErrorKind, State};
use minijinja_contrib::pycompat::unknown_method_callback;

use crate::bounds;
use crate::rewrite::LOOP_ITEMS;

/// Deeper values are refused.
pub const MAX_DEPTH: usize = 100;

pub fn add_to(environment: &mut Environment) {
    environment.set_unknown_method_callback(method);
    environment.set_formatter(|out, _, value| {
        if let Some(text) = value.as_str() {
            return out.write_str(text).map_err(Error::from);
        }
        out.write_str(&to_str(value)?).map_err(Error::from)
    });
    environment.add_filter("string", |value: Value| to_str(&value));
    environment.add_filter(LOOP_ITEMS, loop_items);
    environment.add_test("iterable", |value: Value| !value.is_none() && value.try_iter().is_ok());
    environment.add_filter("map", |state: &State, value: Value, args: Rest<Value>| {
        filters::map(state, value, args).map(generator)
    });
    environment.add_filter("select", |state: &State, value: Value, args: Rest<Value>| {
        let (test, args) = test_and_args(args);
        filters::select(state, value, test, args).map(generator)
    });
    environment.add_filter("reject", |state: &State, value: Value, args: Rest<Value>| {
        let (test, args) = test_and_args(args);
        filters::reject(state, value, test, args).map(generator)
    });
    environment.add_filter(
        "selectattr",
        |state: &State, value: Value, attribute: String, args: Rest<Value>| {
            let (test, args) = test_and_args(args);
            filters::selectattr(state, value, attribute.into(), test, args).map(generator)
        },
    );
    environment.add_filter(
        "rejectattr",
        |state: &State, value: Value, attribute: String, args: Rest<Value>| {
            let (test, args) = test_and_args(args);
            filters::rejectattr(state, value, attribute.into(), test, args).map(generator)
        },
    );
    environment.add_filter("unique", |state: &State, value: Value, kwargs: Kwargs| {
        filters::unique(state, value, kwargs)?.try_iter().map(|values| generator(values.collect()))
    });
}

/// Methods of Python's values: those of pycompat, and some more of strings.
fn method(state: &State, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    if let Some(text) = value.as_str() {
        if let Some(result) = bounds::method(text, name, args)? {
            return Ok(result);
        }
    }
    let (Some(s), Some(Some(arg))) = (value.as_str(), args.first().map(Value::as_str)) else {
        return unknown_method_callback(state, value, name, args);
    };
    let parts = match (name, args.len()) {
        ("removeprefix", 1) => return Ok(s.strip_prefix(arg).unwrap_or(s).into()),
        ("removesuffix", 1) => return Ok(s.strip_suffix(arg).unwrap_or(s).into()),
        ("partition" | "rpartition" | "rsplit", _) if arg.is_empty() => {
            return Err(invalid("an empty separator"));
        }
        ("partition", 1) => match s.split_once(arg) {
            Some((head, tail)) => vec![head, arg, tail],
            None => vec![s, "", ""],
        },
        ("rpartition", 1) => match s.rsplit_once(arg) {
            Some((head, tail)) => vec![head, arg, tail],
            None => vec!["", "", s],
        },
        ("rsplit", 1 | 2) => {
            let limit = match args.get(1) {
                Some(limit) => usize::try_from(i64::try_from(limit.clone())?).unwrap_or(usize::MAX),
                None => usize::MAX,
            };
            let mut parts: Vec<&str> = s.rsplitn(limit.saturating_add(1), arg).collect();
            parts.reverse();
            parts
        }
        _ => return unknown_method_callback(state, value, name, args),
    };
    Ok(parts.into_iter().map(Value::from).collect())
}

fn test_and_args(mut args: Rest<Value>) -> (Option<Cow<'static, str>>, Rest<Value>) {
    if args.is_empty() {
        return (None, args);
    }
    let test = args.remove(0);
    (test.as_str().map(|name| name.to_owned().into()), args)
}

/// The items of a loop, unless the value is None.
fn loop_items(value: Value) -> Result<Value, Error> {
    if value.is_none() {
        return Err(invalid("'NoneType' object is not iterable"));
    }
    Ok(value)
}

/// A generator, as Python's filters of this kind return it: true even when empty, and no list, so it
/// has no JSON.
#[derive(Debug)]
struct Generator(Vec<Value>);

fn generator(values: Vec<Value>) -> Value {
    Value::from_object(Generator(values))
}

impl Object for Generator {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Iterable
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        self.mapped_enumerator(|this| Box::new(this.0.iter().cloned()))
    }

    fn is_true(self: &Arc<Self>) -> bool {
        true
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<generator object>")
    }
}

fn invalid(message: &'static str) -> Error {
    Error::new(ErrorKind::InvalidOperation, message)
}

/// Python's str().
pub fn to_str(value: &Value) -> Result<String, Error> {
    match value.kind() {
        ValueKind::Seq | ValueKind::Map | ValueKind::Number => {
            let mut out = String::new();
            repr(value, &mut out, 0)?;
            Ok(out)
        }
        _ => Ok(value.to_string()),
    }
}

fn repr(value: &Value, out: &mut String, depth: usize) -> Result<(), Error> {
    if depth > MAX_DEPTH {
        return Err(invalid("a value is nested too deeply to be printed"));
    }
    match value.kind() {
        ValueKind::String => repr_string(value.as_str().unwrap_or_default(), out),
        ValueKind::Number if !value.is_integer() => {
            out.push_str(&float_repr(f64::try_from(value.clone()).unwrap_or(f64::NAN)));
        }
        ValueKind::Seq => {
            out.push('[');
            for (index, item) in value.try_iter()?.enumerate() {
                out.push_str(if index > 0 { ", " } else { "" });
                repr(&item, out, depth + 1)?;
            }
            out.push(']');
        }
        ValueKind::Map => {
            out.push('{');
            for (index, key) in value.try_iter()?.enumerate() {
                out.push_str(if index > 0 { ", " } else { "" });
                repr(&key, out, depth + 1)?;
                out.push_str(": ");
                repr(&value.get_item(&key)?, out, depth + 1)?;
            }
            out.push('}');
        }
        _ => {
            let _ = write!(out, "{value}");
        }
    }
    Ok(())
}

fn repr_string(s: &str, out: &mut String) {
    let quote = if s.contains('\'') && !s.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in s.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => out.extend(['\\', c]),
            c if is_printable(c) => out.push(c),
            c if (c as u32) < 0x100 => {
                let _ = write!(out, "\\x{:02x}", c as u32);
            }
            c if (c as u32) < 0x10000 => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => {
                let _ = write!(out, "\\U{:08x}", c as u32);
            }
        }
    }
    out.push(quote);
}

/// Rust's notion of printable, which is Python's: neither control, format, private, unassigned nor a
/// separator other than the space. (After another character, so that accents count as printable.)
fn is_printable(c: char) -> bool {
    c == '\'' || c == '"' || ['.', c].iter().collect::<String>().escape_debug().count() == 2
}

/// Python's repr of a float: the shortest digits that read back the same, with an exponent from
/// 1e16 on and below 1e-4.
pub fn float_repr(x: f64) -> String {
    if x.is_nan() {
        return "nan".to_owned();
    }
    if x.is_infinite() {
        return if x > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    if x == 0.0 || (1e-4..1e16).contains(&x.abs()) {
        return format!("{x:?}");
    }
    let scientific = format!("{x:e}");
    match scientific.split_once('e') {
        Some((digits, exponent)) => {
            let (sign, exponent) = match exponent.strip_prefix('-') {
                Some(exponent) => ('-', exponent),
                None => ('+', exponent),
            };
            format!("{digits}e{sign}{exponent:0>2}")
        }
        None => scientific,
    }
}
