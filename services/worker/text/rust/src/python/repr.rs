// SPDX-License-Identifier: Apache-2.0
//! Python's str() and repr().

use std::rc::Rc;

use super::error::{charge, charge_bytes, raised, refused, Result};
use super::float;
use super::text::{too_long, Builder, Str};
use super::value::{Dict, Value, View};

/// Deeper values are not printed.
pub const MAX_PRINTED_DEPTH: usize = 100;

/// str(value)
pub fn to_str(value: &Value) -> Result<Str> {
    match value {
        Value::Str(s) => Ok(s.clone().with_markup(false)),
        Value::Undefined(_) => Ok(Str::from("")),
        _ => repr(value),
    }
}

/// Jinja2's soft_str: a Markup stays one.
pub fn to_soft_str(value: &Value) -> Result<Str> {
    match value {
        Value::Str(s) => Ok(s.clone()),
        _ => to_str(value),
    }
}

pub fn repr(value: &Value) -> Result<Str> {
    let mut out = Builder::default();
    write_repr(value, &mut out, 0)?;
    out.finish()
}

fn write_repr(value: &Value, out: &mut Builder, depth: usize) -> Result<()> {
    charge(1)?;
    if out.is_full() {
        return Err(too_long());
    }
    if depth > MAX_PRINTED_DEPTH {
        return Err(raised(format!(
            "a value nested more than {MAX_PRINTED_DEPTH} deep is printed"
        )));
    }
    match value {
        Value::Undefined(_) => out.push_str("Undefined"),
        Value::None => out.push_str("None"),
        Value::Bool(true) => out.push_str("True"),
        Value::Bool(false) => out.push_str("False"),
        Value::Int(n) => out.push_str(&n.to_string()),
        Value::Float(x) => out.push_str(&float::repr(*x)),
        Value::Str(s) if s.markup => {
            out.push_str("Markup(");
            write_str(s, out)?;
            out.push_str(")");
        }
        Value::Str(s) => write_str(s, out)?,
        Value::List(list) => {
            out.push_str("[");
            write_items(&list.items, out, depth)?;
            out.push_str("]");
        }
        Value::Tuple(list) => {
            out.push_str("(");
            write_items(&list.items, out, depth)?;
            out.push_str(if list.items.len() == 1 { ",)" } else { ")" });
        }
        Value::Dict(dict) => write_dict(dict.entries(), out, depth)?,
        Value::View(view, dict) => write_view(*view, dict, out, depth)?,
        Value::Range(r) => {
            out.push_str(&format!("range({}, {}", r.start, r.stop));
            out.push_str(&if r.step == 1 { ")".to_owned() } else { format!(", {})", r.step) });
        }
        Value::Namespace(namespace) => {
            let attributes: Vec<(Value, Value)> = namespace
                .attributes
                .borrow()
                .iter()
                .map(|(name, value)| (Value::str(name), value.clone()))
                .collect();
            out.push_str("<Namespace ");
            write_dict(&attributes, out, depth)?;
            out.push_str(">");
        }
        Value::Macro(of) => out.push_str(&of.repr()?),
        Value::Loop(_) => return Err(refused("printing `loop`")),
        Value::Iterator(_) => return Err(refused("printing an iterator (use the filter list)")),
        _ => return Err(refused(format!("printing a {}", value.type_name()))),
    }
    Ok(())
}

fn write_items(items: &[Value], out: &mut Builder, depth: usize) -> Result<()> {
    for (index, item) in items.iter().enumerate() {
        out.push_str(if index > 0 { ", " } else { "" });
        write_repr(item, out, depth + 1)?;
    }
    Ok(())
}

fn write_dict(entries: &[(Value, Value)], out: &mut Builder, depth: usize) -> Result<()> {
    out.push_str("{");
    for (index, (key, item)) in entries.iter().enumerate() {
        out.push_str(if index > 0 { ", " } else { "" });
        write_repr(key, out, depth + 1)?;
        out.push_str(": ");
        write_repr(item, out, depth + 1)?;
    }
    out.push_str("}");
    Ok(())
}

fn write_view(view: View, dict: &Rc<Dict>, out: &mut Builder, depth: usize) -> Result<()> {
    out.push_str(match view {
        View::Keys => "dict_keys([",
        View::Values => "dict_values([",
        View::Items => "dict_items([",
    });
    for (index, (key, item)) in dict.entries().iter().enumerate() {
        out.push_str(if index > 0 { ", " } else { "" });
        match view {
            View::Keys => write_repr(key, out, depth + 1)?,
            View::Values => write_repr(item, out, depth + 1)?,
            View::Items => {
                out.push_str("(");
                write_repr(key, out, depth + 1)?;
                out.push_str(", ");
                write_repr(item, out, depth + 1)?;
                out.push_str(")");
            }
        }
    }
    out.push_str("])");
    Ok(())
}

fn write_str(s: &Str, out: &mut Builder) -> Result<()> {
    charge_bytes(s.len())?;
    let text = s.as_str();
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push_char(quote);
    let escaped = s.map(|c, part| match c {
        '\\' => part.push_str("\\\\"),
        '\n' => part.push_str("\\n"),
        '\r' => part.push_str("\\r"),
        '\t' => part.push_str("\\t"),
        c if c == quote => part.extend(['\\', c]),
        c if is_printable(c) => part.push(c),
        c => escape(c, part),
    })?;
    out.push(&escaped);
    out.push_char(quote);
    Ok(())
}

fn escape(c: char, out: &mut String) {
    out.push_str(&match c as u32 {
        code if code < 0x100 => format!("\\x{code:02x}"),
        code if code < 0x10000 => format!("\\u{code:04x}"),
        code => format!("\\U{code:08x}"),
    });
}

/// ascii(value)
pub fn ascii(value: &Value) -> Result<Str> {
    repr(value)?.map(|c, out| if c.is_ascii() { out.push(c) } else { escape(c, out) })
}

/// Rust's notion of printable, which is Python's: neither control, format, private, unassigned nor a
/// separator other than the space. (After another character, so that accents count as printable.)
pub fn is_printable(c: char) -> bool {
    matches!(c, ' '..='~')
        || ['.', c].iter().collect::<String>().escape_debug().count() == 2
}
