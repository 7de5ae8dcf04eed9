// SPDX-License-Identifier: Apache-2.0
//! Attributes and items of values, as the sandbox of Jinja2 lets a template see them, and the methods of
//! values that are no strings.

use std::rc::Rc;

use super::arguments::Arguments;
use super::error::{charge, raised, refused, Result};
use super::operators::equal;
use super::str_methods;
use super::value::{Dict, Lazy, List, Missing, Range, Step, Value, View};
use crate::jinja::Interpreter;

/// Names with underscores that every object has; the sandbox lets none be read.
const INTERNAL: [&str; 22] = [
    "__class__",
    "__delattr__",
    "__dir__",
    "__doc__",
    "__eq__",
    "__format__",
    "__ge__",
    "__getattribute__",
    "__gt__",
    "__hash__",
    "__init__",
    "__init_subclass__",
    "__le__",
    "__lt__",
    "__ne__",
    "__new__",
    "__reduce__",
    "__reduce_ex__",
    "__repr__",
    "__setattr__",
    "__str__",
    "__subclasshook__",
];
const MUTATING_LIST: [&str; 8] =
    ["append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"];
const LIST: [&str; 3] = ["copy", "count", "index"];
const MUTATING_DICT: [&str; 5] = ["clear", "pop", "popitem", "setdefault", "update"];
const DICT: [&str; 6] = ["copy", "fromkeys", "get", "items", "keys", "values"];
const INT: [&str; 6] =
    ["as_integer_ratio", "bit_count", "bit_length", "conjugate", "from_bytes", "to_bytes"];
const FLOAT: [&str; 5] = ["as_integer_ratio", "conjugate", "fromhex", "hex", "is_integer"];

/// The attribute that Python's getattr finds: a value, or nothing.
fn python_attribute(object: &Value, name: &str) -> Result<Option<Value>> {
    if let Value::Namespace(namespace) = object {
        if let Some(value) = namespace.get(name) {
            if !name.starts_with('_') {
                return Ok(Some(value));
            }
            return Ok(Some(hidden(object, name)));
        }
    }
    if INTERNAL.contains(&name) {
        return Ok(Some(hidden(object, name)));
    }
    let method = || Ok(Some(Value::Method(Rc::new((object.clone(), name.to_owned())))));
    let is = |names: &[&str]| names.contains(&name);
    match object {
        Value::Str(_) if is(&str_methods::NAMES) => method(),
        Value::Str(s) if s.markup && is(&["escape", "striptags", "unescape"]) => {
            Err(refused(format!("Markup.{name}")))
        }
        Value::List(_) if is(&MUTATING_LIST) => Ok(Some(hidden(object, name))),
        Value::List(_) if is(&LIST) => method(),
        Value::Tuple(of) if of.is_group && is(&["grouper", "list"]) => {
            Ok(Some(of.items[usize::from(name == "list")].clone()))
        }
        Value::Tuple(_) if is(&["count", "index"]) => method(),
        Value::Dict(_) if is(&MUTATING_DICT) => Ok(Some(hidden(object, name))),
        Value::Dict(_) if is(&DICT) => method(),
        Value::View(View::Values, _) if is(&["mapping"]) => Err(refused("mapping of a view")),
        Value::View(..) if is(&["isdisjoint", "mapping"]) => {
            Err(refused(format!("{name} of a view of a dictionary")))
        }
        Value::Int(_) | Value::Bool(_) if is(&["real", "numerator"]) => {
            Ok(object.as_int().map(Value::Int))
        }
        Value::Int(_) | Value::Bool(_) if name == "imag" => Ok(Some(Value::Int(0))),
        Value::Int(_) | Value::Bool(_) if name == "denominator" => Ok(Some(Value::Int(1))),
        Value::Int(_) | Value::Bool(_) if is(&INT) => method(),
        Value::Float(_) if name == "real" => Ok(Some(object.clone())),
        Value::Float(_) if name == "imag" => Ok(Some(Value::Float(0.0))),
        Value::Float(_) if is(&FLOAT) => method(),
        Value::Range(range) => match name {
            "start" => Ok(Some(Value::Int(range.start))),
            "stop" => Ok(Some(Value::Int(range.stop))),
            "step" => Ok(Some(Value::Int(range.step))),
            "count" | "index" => method(),
            _ => Ok(None),
        },
        Value::Iterator(_) if is(&["send", "throw", "close"]) || name.starts_with("gi_") => {
            Err(refused(format!("{name} of an iterator")))
        }
        Value::Cycler(cycler) => match name {
            "current" => Ok(cycler.items.items.get(cycler.at.get()).cloned()),
            "items" => Value::tuple(cycler.items.items.clone()).map(Some),
            "pos" => Ok(Some(Value::Int(cycler.at.get() as i128))),
            "next" | "reset" => method(),
            _ => Ok(None),
        },
        Value::Joiner(joiner) => match name {
            "sep" => Ok(Some(joiner.separator.clone())),
            "used" => Ok(Some(Value::Bool(joiner.used.get()))),
            _ => Ok(None),
        },
        Value::Macro(of) => of.attribute(name),
        Value::Function(_) | Value::Method(_) => Err(refused("an attribute of a function")),
        Value::Loop(_) => Err(refused("`loop` in str.format")),
        _ => Ok(None),
    }
}

fn hidden(object: &Value, name: &str) -> Value {
    let owner = object.type_name();
    Value::Undefined(Rc::new(Missing::Unsafe { owner, name: name.to_owned() }))
}

fn missing(object: &Value, name: &str) -> Value {
    let owner = object.type_name();
    Value::Undefined(Rc::new(Missing::Attribute { owner, name: name.to_owned() }))
}

/// object.name: the attribute, or else the item of this name.
pub fn attribute(object: &Value, name: &str) -> Result<Value> {
    if let (Value::Undefined(missing), false) = (object, INTERNAL.contains(&name)) {
        return Err(missing.error());
    }
    if let Some(value) = python_attribute(object, name)? {
        return Ok(value);
    }
    match object {
        Value::Dict(dict) => match dict.get_str(name) {
            Some(value) => Ok(value.clone()),
            None => Ok(missing(object, name)),
        },
        _ => Ok(missing(object, name)),
    }
}

/// object[key]: the item, or else the attribute of this name.
pub fn item(object: &Value, key: &Value) -> Result<Value> {
    if let Value::Undefined(missing) = object {
        return Err(missing.error());
    }
    if let Some(value) = python_item(object, key)? {
        return Ok(value);
    }
    match key {
        Value::Str(name) => match python_attribute(object, name.as_str())? {
            Some(value) => Ok(value),
            None => Ok(missing(object, name.as_str())),
        },
        _ => Ok(missing(
            object,
            super::repr::repr(key)
                .map_or_else(|_| String::new(), |s| s.as_str().to_owned())
                .as_str(),
        )),
    }
}

/// The filter attr: an attribute and no item.
pub fn only_attribute(object: &Value, name: &str) -> Result<Value> {
    match object {
        Value::Undefined(of) if !INTERNAL.contains(&name) => Err(of.error()),
        Value::Undefined(_) => Ok(hidden(object, name)),
        _ => Ok(python_attribute(object, name)?.unwrap_or_else(|| missing(object, name))),
    }
}

/// Returns what Python's subscription finds; nothing for a KeyError, an IndexError or a TypeError.
fn python_item(object: &Value, key: &Value) -> Result<Option<Value>> {
    let index = |length: usize| {
        let index = key.as_int()?;
        let index = if index < 0 { index + length as i128 } else { index };
        usize::try_from(index).ok().filter(|index| *index < length)
    };
    match object {
        Value::Dict(dict) => match dict.get(key) {
            Ok(value) => Ok(value.cloned()),
            // A key that cannot be hashed.
            Err(error) if error.kind == super::error::Kind::Raised => Ok(None),
            Err(error) => Err(error),
        },
        Value::List(list) | Value::Tuple(list) => {
            Ok(index(list.items.len()).map(|index| list.items[index].clone()))
        }
        Value::Range(range) => Ok(index(range.len()).map(|index| range.at(index))),
        Value::Str(s) if key.as_int().is_some() => {
            charge(s.len() / 256)?;
            let Some(index) = index(s.num_chars()) else { return Ok(None) };
            let begin = s.offset_of(index);
            let width = s.as_str()[begin..].chars().next().map_or(0, char::len_utf8);
            Ok(Some(Value::Str(s.slice(begin..begin + width))))
        }
        Value::Function(_) => Err(refused("an item of a function")),
        _ => Ok(None),
    }
}

/// object[start:stop:step]
pub fn slice(object: &Value, bounds: [Option<Value>; 3]) -> Result<Value> {
    if let Value::Undefined(missing) = object {
        return Err(missing.error());
    }
    let length = match object {
        Value::Str(s) => {
            charge(s.len() / 256)?;
            s.num_chars()
        }
        Value::List(list) | Value::Tuple(list) => list.items.len(),
        Value::Range(range) => range.len(),
        _ => return Err(raised(format!("'{}' object is not subscriptable", object.type_name()))),
    };
    let [start, stop, step] = indices(bounds, length as i128)?;
    let span = if step > 0 { stop - start } else { start - stop };
    let count = if span <= 0 { 0 } else { ((span - 1) / step.abs() + 1) as usize };
    let picked = (0..count).map(|i| (start + step * i as i128) as usize);
    match object {
        Value::Str(s) if step == 1 => {
            let begin = s.offset_of(start as usize);
            let end = if count == 0 { begin } else { s.offset_of(stop as usize) };
            Ok(Value::Str(s.slice(begin..end)))
        }
        Value::Str(s) => {
            charge(count)?;
            let offsets: Vec<usize> = s.as_str().char_indices().map(|(at, _)| at).collect();
            let end = |index: usize| offsets.get(index + 1).copied().unwrap_or(s.len());
            let mut out = super::text::Builder::default();
            picked.for_each(|index| out.push_part(s, offsets[index]..end(index)));
            Ok(Value::Str(out.finish()?.with_markup(s.markup)))
        }
        Value::List(list) => Value::list(picked.map(|index| list.items[index].clone()).collect()),
        Value::Tuple(list) => Value::tuple(picked.map(|index| list.items[index].clone()).collect()),
        Value::Range(r) => Ok(Value::Range(Range {
            start: r.start + r.step * start,
            stop: r.start + r.step * stop,
            step: r.step * step,
        })),
        _ => Err(raised("no slice")),
    }
}

fn indices(bounds: [Option<Value>; 3], length: i128) -> Result<[i128; 3]> {
    let mut numbers = [None; 3];
    for (number, bound) in numbers.iter_mut().zip(&bounds) {
        *number = match bound {
            None | Some(Value::None) => None,
            Some(Value::Undefined(_)) => {
                return Err(raised("slice indices must be integers or None"));
            }
            Some(value) => match value.as_int() {
                Some(n) => Some(n.clamp(-(1 << 62), 1 << 62)),
                None => return Err(raised("slice indices must be integers or None")),
            },
        };
    }
    let step = numbers[2].unwrap_or(1);
    if step == 0 {
        return Err(raised("slice step cannot be zero"));
    }
    let (low, high) = if step > 0 { (0, length) } else { (-1, length - 1) };
    let place = |number: Option<i128>, default: i128| match number {
        None => default,
        Some(n) if n < 0 => (n + length).max(low),
        Some(n) => n.min(high),
    };
    let (start, stop) = if step > 0 { (low, high) } else { (high, low) };
    Ok([place(numbers[0], start), place(numbers[1], stop), step])
}

/// Calls a bound method of a value that is no string.
pub fn call_method(object: &Value, name: &str, arguments: Arguments) -> Result<Value> {
    match object {
        Value::List(list) | Value::Tuple(list) => sequence_method(object, list, name, arguments),
        Value::Dict(dict) => dict_method(dict, name, arguments),
        Value::Range(range) => {
            let wanted = arguments.bind("range.index", &[""])?.required(0)?;
            let at = wanted.as_int().and_then(|n| range.index_of(n));
            match (name, at) {
                ("count", at) => Ok(Value::Int(at.is_some().into())),
                (_, Some(at)) => Ok(Value::Int(at as i128)),
                _ => Err(raised("value is not in range")),
            }
        }
        Value::Int(_) | Value::Bool(_) => {
            let n = object.as_int().unwrap_or(0);
            match name {
                "to_bytes" | "from_bytes" => return Err(refused(format!("int.{name}"))),
                _ => arguments.bind("int.…", &[])?,
            };
            match name {
                "bit_length" => Ok(Value::Int((128 - n.unsigned_abs().leading_zeros()).into())),
                "bit_count" => Ok(Value::Int(n.unsigned_abs().count_ones().into())),
                "as_integer_ratio" => Value::tuple(vec![Value::Int(n), Value::Int(1)]),
                _ => Ok(Value::Int(n)),
            }
        }
        Value::Float(x) => match name {
            "is_integer" => {
                arguments.bind("float.is_integer", &[])?;
                Ok(Value::Bool(x.is_finite() && x.fract() == 0.0))
            }
            "conjugate" => arguments.bind("float.conjugate", &[]).map(|_| Value::Float(*x)),
            _ => Err(refused(format!("float.{name}"))),
        },
        Value::Cycler(cycler) => {
            arguments.bind("cycler.…", &[])?;
            if name == "reset" {
                cycler.at.set(0);
                return Ok(Value::None);
            }
            let at = cycler.at.get();
            cycler.at.set((at + 1) % cycler.items.items.len());
            Ok(cycler.items.items[at].clone())
        }
        _ => Err(refused(format!("{}.{name}", object.type_name()))),
    }
}

fn sequence_method(
    object: &Value,
    list: &Rc<List>,
    name: &str,
    arguments: Arguments,
) -> Result<Value> {
    charge(list.items.len() / 16)?;
    match name {
        "copy" => arguments.bind("list.copy", &[]).map(|_| object.clone()),
        "count" => {
            let wanted = arguments.bind("list.count", &[""])?.required(0)?;
            let mut count = 0;
            for item in &list.items {
                count += i128::from(equal(item, &wanted)?);
            }
            Ok(Value::Int(count))
        }
        _ => {
            let mut bound = arguments.bind("list.index", &["", "", ""])?;
            let wanted = bound.required(0)?;
            let length = list.items.len() as i128;
            let place = |n: i128| if n < 0 { (n + length).max(0) } else { n.min(length) } as usize;
            let begin = place(bound.int(1, 0)?);
            let end = place(bound.int(2, length)?);
            for (index, item) in list.items[..end.max(begin)].iter().enumerate().skip(begin) {
                if index < end && equal(item, &wanted)? {
                    return Ok(Value::Int(index as i128));
                }
            }
            Err(raised("the value is not in list"))
        }
    }
}

fn dict_method(dict: &Rc<Dict>, name: &str, arguments: Arguments) -> Result<Value> {
    match name {
        "get" => {
            let mut bound = arguments.bind("dict.get", &["", ""])?;
            let key = bound.required(0)?;
            let default = bound.take(1).unwrap_or(Value::None);
            Ok(dict.get(&key)?.cloned().unwrap_or(default))
        }
        "fromkeys" => Err(refused("dict.fromkeys")),
        _ => {
            arguments.bind("dict.items", &[])?;
            Ok(match name {
                "copy" => Value::Dict(dict.clone()),
                "items" => Value::View(View::Items, dict.clone()),
                "keys" => Value::View(View::Keys, dict.clone()),
                _ => Value::View(View::Values, dict.clone()),
            })
        }
    }
}

/// The items of a value that Python can iterate, but for generators; nothing for another value.
pub fn items_of(value: &Value) -> Result<Option<Rc<List>>> {
    let list = |items: Vec<Value>| match Value::list(items)? {
        Value::List(list) => Ok(Some(list)),
        _ => Ok(None),
    };
    match value {
        Value::Undefined(_) => list(Vec::new()),
        Value::List(of) | Value::Tuple(of) => Ok(Some(of.clone())),
        Value::Str(s) => {
            charge(s.len() / 16)?;
            let mut offsets = s.as_str().char_indices().map(|(at, c)| at..at + c.len_utf8());
            let chars = offsets.by_ref().take(super::value::MAX_ITEMS + 1);
            // The characters of a Markup are plain strings.
            list(chars.map(|range| Value::Str(s.slice(range).with_markup(false))).collect())
        }
        Value::Dict(dict) | Value::View(View::Keys, dict) => {
            list(dict.entries().iter().map(|(key, _)| key.clone()).collect())
        }
        Value::View(View::Values, dict) => {
            list(dict.entries().iter().map(|(_, value)| value.clone()).collect())
        }
        Value::View(View::Items, dict) => {
            let pairs = dict.entries().iter();
            let pairs = pairs.map(|(key, value)| Value::tuple(vec![key.clone(), value.clone()]));
            list(pairs.collect::<Result<_>>()?)
        }
        Value::Range(range) => {
            if range.len() > super::value::MAX_ITEMS {
                return Err(raised("Range too big"));
            }
            list((0..range.len()).map(|index| range.at(index)).collect())
        }
        _ => Ok(None),
    }
}

/// reversed(value), or nothing where that is a TypeError.
pub fn reversed(value: &Value) -> Result<Option<Value>> {
    struct Reversed(Rc<List>, usize);
    impl Step for Reversed {
        fn next(&mut self, _: &mut Interpreter) -> Result<Option<Value>> {
            let Some(index) = self.1.checked_sub(1) else { return Ok(None) };
            self.1 = index;
            Ok(Some(self.0.items[index].clone()))
        }
    }
    if matches!(value, Value::Iterator(_)) {
        return Ok(None);
    }
    let Some(list) = items_of(value)? else { return Ok(None) };
    let length = list.items.len();
    Lazy::new(Reversed(list, length), value).map(Some)
}
