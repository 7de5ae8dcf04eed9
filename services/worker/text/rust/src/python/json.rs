// SPDX-License-Identifier: Apache-2.0
//! The filter `tojson` as transformers has it: Python's json.dumps(value, ensure_ascii=False).

use super::arguments::Arguments;
use super::error::{charge, charge_bytes, raised, Result};
use super::float;
use super::operators::less;
use super::repr::MAX_PRINTED_DEPTH;
use super::sort::sorted;
use super::text::{Builder, Str};
use super::value::Value;

/// tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False)
pub fn tojson(value: &Value, arguments: Arguments) -> Result<Value> {
    let mut bound =
        arguments.bind("tojson", &["ensure_ascii", "indent", "separators", "sort_keys"])?;
    let ensure_ascii = bound.is_true(0, false);
    let indent = match bound.take_some(1) {
        None => None,
        Some(Value::Str(s)) => Some(s),
        Some(value) => match value.as_int() {
            Some(n) => Some(Str::template(" ".repeat(n.clamp(0, 1000) as usize))),
            None => return Err(raised("tojson: indent is an integer or a string")),
        },
    };
    let separators = match bound.take_some(2) {
        None => None,
        Some(Value::List(list) | Value::Tuple(list)) => match list.items.as_slice() {
            [Value::Str(item), Value::Str(key)] => Some((item.clone(), key.clone())),
            _ => return Err(raised("tojson: separators are two strings")),
        },
        Some(_) => return Err(raised("tojson: separators are two strings")),
    };
    let (item_separator, key_separator) = match separators {
        Some(separators) => separators,
        None if indent.is_some() => (Str::from(","), Str::from(": ")),
        None => (Str::from(", "), Str::from(": ")),
    };
    let mut writer = Writer {
        out: Builder::default(),
        indent,
        item_separator,
        key_separator,
        ensure_ascii,
        sort_keys: bound.is_true(3, false),
    };
    writer.value(value, 0)?;
    let text = writer.out.finish()?;
    charge_bytes(text.len())?;
    Ok(Value::Str(text))
}

struct Writer {
    out: Builder,
    indent: Option<Str>,
    item_separator: Str,
    key_separator: Str,
    ensure_ascii: bool,
    sort_keys: bool,
}

impl Writer {
    fn value(&mut self, value: &Value, depth: usize) -> Result<()> {
        charge(1)?;
        if depth > MAX_PRINTED_DEPTH {
            return Err(raised(format!("tojson: nested more than {MAX_PRINTED_DEPTH} deep")));
        }
        if self.out.is_full() {
            return Err(super::text::too_long());
        }
        match value {
            Value::None => self.out.push_str("null"),
            Value::Bool(true) => self.out.push_str("true"),
            Value::Bool(false) => self.out.push_str("false"),
            Value::Int(n) => self.out.push_str(&n.to_string()),
            Value::Float(x) => self.out.push_str(&number(*x)),
            Value::Str(s) => self.string(s)?,
            Value::List(list) | Value::Tuple(list) => {
                self.out.push_str("[");
                for (index, item) in list.items.iter().enumerate() {
                    self.before_item(index == 0, depth + 1);
                    self.value(item, depth + 1)?;
                }
                self.after_items(list.items.is_empty(), depth);
                self.out.push_str("]");
            }
            Value::Dict(dict) => {
                let mut entries: Vec<&(Value, Value)> = dict.entries().iter().collect();
                if self.sort_keys {
                    let all = dict.entries();
                    let less = |x: usize, y: usize| less(&all[x].0, &all[y].0);
                    entries = sorted(all.len(), less)?.into_iter().map(|at| &all[at]).collect();
                }
                self.out.push_str("{");
                for (index, (key, item)) in entries.iter().enumerate() {
                    self.before_item(index == 0, depth + 1);
                    self.key(key)?;
                    self.out.push(&self.key_separator);
                    self.value(item, depth + 1)?;
                }
                self.after_items(entries.is_empty(), depth);
                self.out.push_str("}");
            }
            value => {
                let kind = value.type_name();
                return Err(raised(format!("Object of type {kind} is not JSON serializable")));
            }
        }
        Ok(())
    }

    fn key(&mut self, key: &Value) -> Result<()> {
        let text = match key {
            Value::Str(s) => return self.string(s),
            Value::None => "null".to_owned(),
            Value::Bool(b) => b.to_string(),
            Value::Int(n) => n.to_string(),
            Value::Float(x) => number(*x),
            key => {
                let kind = key.type_name();
                return Err(raised(format!(
                    "keys must be str, int, float, bool or None, not {kind}"
                )));
            }
        };
        self.out.push_str(&format!("\"{text}\""));
        Ok(())
    }

    fn before_item(&mut self, first: bool, depth: usize) {
        if !first {
            self.out.push(&self.item_separator);
        }
        self.new_line(depth);
    }

    fn after_items(&mut self, empty: bool, depth: usize) {
        if !empty {
            self.new_line(depth);
        }
    }

    fn new_line(&mut self, depth: usize) {
        if let Some(indent) = &self.indent {
            self.out.push_str("\n");
            (0..depth).for_each(|_| self.out.push(indent));
        }
    }

    fn string(&mut self, s: &Str) -> Result<()> {
        charge_bytes(s.len())?;
        let ensure_ascii = self.ensure_ascii;
        let escaped = s.clone().with_markup(false).map(|c, out| match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            c if c < ' ' || (ensure_ascii && !c.is_ascii()) => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    out.push_str(&format!("\\u{unit:04x}"));
                }
            }
            c => out.push(c),
        })?;
        self.out.push_str("\"");
        self.out.push(&escaped);
        self.out.push_str("\"");
        Ok(())
    }
}

fn number(x: f64) -> String {
    match x {
        x if x.is_nan() => "NaN".to_owned(),
        f64::INFINITY => "Infinity".to_owned(),
        f64::NEG_INFINITY => "-Infinity".to_owned(),
        x => float::repr(x),
    }
}
