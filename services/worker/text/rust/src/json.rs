// SPDX-License-Identifier: Apache-2.0
//! The filter `tojson` as transformers has it: Python's json.dumps(value, ensure_ascii=False).

use std::fmt::Write as _;

use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{Error, ErrorKind};

use crate::python::{float_repr, MAX_DEPTH};

/// tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False)
pub fn tojson(value: &Value, indent: Option<usize>, kwargs: Kwargs) -> Result<String, Error> {
    let indent = match indent {
        Some(indent) => Some(indent),
        None => kwargs.get::<Option<usize>>("indent")?,
    };
    let separators: Option<Vec<String>> = kwargs.get("separators")?;
    let (item_separator, key_separator) = match separators.as_deref() {
        Some([item, key]) => (item.clone(), key.clone()),
        Some(_) => return Err(invalid("tojson: separators are two strings")),
        None if indent.is_some() => (",".to_owned(), ": ".to_owned()),
        None => (", ".to_owned(), ": ".to_owned()),
    };
    let mut writer = Writer {
        out: String::new(),
        indent: indent.map(|n| n.min(64)),
        item_separator,
        key_separator,
        ensure_ascii: kwargs.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false),
        sort_keys: kwargs.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
    };
    kwargs.assert_all_used()?;
    writer.value(value, 0)?;
    Ok(writer.out)
}

fn invalid(message: &'static str) -> Error {
    Error::new(ErrorKind::InvalidOperation, message)
}

struct Writer {
    out: String,
    indent: Option<usize>,
    item_separator: String,
    key_separator: String,
    ensure_ascii: bool,
    sort_keys: bool,
}

impl Writer {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            return Err(invalid("tojson: the value is nested too deeply"));
        }
        match value.kind() {
            ValueKind::None => self.out.push_str("null"),
            ValueKind::Bool => self.out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => self.number(value),
            ValueKind::String => self.string(value.as_str().unwrap_or_default()),
            ValueKind::Seq => self.sequence(value, depth)?,
            ValueKind::Map => self.map(value, depth)?,
            kind => {
                let message = format!("tojson: a value of type {kind} has no JSON");
                return Err(Error::new(ErrorKind::InvalidOperation, message));
            }
        }
        Ok(())
    }

    fn number(&mut self, value: &Value) {
        if value.is_integer() {
            let _ = write!(self.out, "{value}");
        } else {
            let x = f64::try_from(value.clone()).unwrap_or(f64::NAN);
            self.out.push_str(match x {
                x if x.is_nan() => "NaN",
                f64::INFINITY => "Infinity",
                f64::NEG_INFINITY => "-Infinity",
                x => return self.out.push_str(&float_repr(x)),
            });
        }
    }

    fn sequence(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        self.out.push('[');
        let mut empty = true;
        for item in value.try_iter()? {
            self.before_item(empty, depth + 1);
            empty = false;
            self.value(&item, depth + 1)?;
        }
        self.after_items(empty, depth);
        self.out.push(']');
        Ok(())
    }

    fn map(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        let mut keys: Vec<Value> = value.try_iter()?.collect();
        if self.sort_keys {
            keys.sort();
        }
        self.out.push('{');
        let mut empty = true;
        for key in keys {
            self.before_item(empty, depth + 1);
            empty = false;
            match key.kind() {
                ValueKind::String => self.string(key.as_str().unwrap_or_default()),
                ValueKind::None | ValueKind::Bool | ValueKind::Number => {
                    self.out.push('"');
                    self.value(&key, depth + 1)?;
                    self.out.push('"');
                }
                _ => return Err(invalid("tojson: a key that is no string")),
            }
            self.out.push_str(&self.key_separator);
            self.value(&value.get_item(&key)?, depth + 1)?;
        }
        self.after_items(empty, depth);
        self.out.push('}');
        Ok(())
    }

    fn before_item(&mut self, first: bool, depth: usize) {
        if !first {
            self.out.push_str(&self.item_separator);
        }
        self.new_line(depth);
    }

    fn after_items(&mut self, empty: bool, depth: usize) {
        if !empty {
            self.new_line(depth);
        }
    }

    fn new_line(&mut self, depth: usize) {
        if let Some(indent) = self.indent {
            self.out.push('\n');
            self.out.extend(std::iter::repeat_n(' ', indent * depth));
        }
    }

    fn string(&mut self, s: &str) {
        self.out.push('"');
        for c in s.chars() {
            match c {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\u{8}' => self.out.push_str("\\b"),
                '\u{c}' => self.out.push_str("\\f"),
                c if c < ' ' || (self.ensure_ascii && c > '~') => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        let _ = write!(self.out, "\\u{unit:04x}");
                    }
                }
                c => self.out.push(c),
            }
        }
        self.out.push('"');
    }
}
