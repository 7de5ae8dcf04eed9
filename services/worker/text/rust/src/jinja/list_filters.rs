// SPDX-License-Identifier: Apache-2.0
//! Filters that read a whole list.

use super::Interpreter;
use crate::python::arguments::{Arguments, Bound};
use crate::python::attributes::reversed;
use crate::python::error::{charge_bytes, raised, Result};
use crate::python::operators::{self, equal, less, Binary};
use crate::python::sort::sorted;
use crate::python::str_methods::change_case;
use crate::python::text::Builder;
use crate::python::value::{Dict, Value, View};

/// Jinja2's make_attrgetter: gets the value at a path of attributes, small where case is ignored.
pub struct Getter {
    path: Vec<Value>,
    ignore_case: bool,
    default: Option<Value>,
}

impl Getter {
    pub fn new(attribute: Option<Value>, ignore_case: bool, default: Option<Value>) -> Getter {
        let path = match attribute {
            None => Vec::new(),
            Some(Value::Str(s)) => path_of(s.as_str()),
            Some(other) => vec![other],
        };
        Getter { path, ignore_case, default }
    }

    pub fn get(&self, interpreter: &mut Interpreter, item: &Value) -> Result<Value> {
        let mut value = item.clone();
        for part in &self.path {
            value = interpreter.item(&value, part)?;
            if let (true, Some(default)) = (value.is_undefined(), &self.default) {
                value = default.clone();
            }
        }
        match &value {
            Value::Str(s) if self.ignore_case => change_case(s, "lower").map(Value::Str),
            _ => Ok(value),
        }
    }
}

/// "a.0.b"
fn path_of(text: &str) -> Vec<Value> {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let parts = text.split('.').map(|part| match part.parse::<i128>() {
        Ok(n) if is_number(part) => Value::Int(n),
        _ => Value::str(part),
    });
    parts.collect()
}

pub fn apply(
    interpreter: &mut Interpreter,
    name: &str,
    value: Value,
    arguments: Arguments,
) -> Result<Value> {
    match name {
        "list" => {
            arguments.bind("list", &[])?;
            Ok(Value::List(interpreter.collect(&value)?))
        }
        "first" => {
            arguments.bind("first", &[])?;
            let first = match &value {
                // The first character, without a list of all others.
                Value::Str(s) => s
                    .as_str()
                    .chars()
                    .next()
                    .map(|c| Value::Str(s.slice(0..c.len_utf8()).with_markup(false))),
                _ => interpreter.iterate(&value)?.next(interpreter)?,
            };
            Ok(first.unwrap_or_else(|| Value::undefined("No first item, sequence was empty.")))
        }
        "last" => {
            arguments.bind("last", &[])?;
            let Some(reversed) = reversed(&value)? else {
                let kind = value.type_name();
                return Err(raised(format!("'{kind}' object is not reversible")));
            };
            let last = interpreter.iterate(&reversed)?.next(interpreter)?;
            Ok(last.unwrap_or_else(|| Value::undefined("No last item, sequence was empty.")))
        }
        "reverse" => {
            arguments.bind("reverse", &[])?;
            reverse(interpreter, value)
        }
        "join" => join(interpreter, &value, arguments),
        "sum" => {
            let mut bound = arguments.bind("sum", &["attribute", "start"])?;
            let attribute = bound.take_some(0);
            let mut sum = bound.take(1).unwrap_or(Value::Int(0));
            let list = interpreter.collect(&value)?;
            if matches!(sum, Value::Str(_)) {
                return Err(raised("sum() can't sum strings [use ''.join(seq) instead]"));
            }
            let getter = attribute.map(|attribute| Getter::new(Some(attribute), false, None));
            for item in &list.items {
                let item = match &getter {
                    Some(getter) => getter.get(interpreter, item)?,
                    None => item.clone(),
                };
                sum = operators::binary(Binary::Add, &sum, &item)?;
            }
            Ok(sum)
        }
        "min" | "max" => {
            let mut bound = arguments.bind("min", &["case_sensitive", "attribute"])?;
            let ignore_case = !bound.is_true(0, false);
            let getter = Getter::new(bound.take_some(1), ignore_case, None);
            let list = interpreter.collect(&value)?;
            let mut best: Option<(Value, &Value)> = None;
            for item in &list.items {
                let key = getter.get(interpreter, item)?;
                let better = match &best {
                    None => true,
                    Some((other, _)) if name == "min" => less(&key, other)?,
                    Some((other, _)) => less(other, &key)?,
                };
                if better {
                    best = Some((key, item));
                }
            }
            let empty = || Value::undefined("No aggregated item, sequence was empty.");
            Ok(best.map_or_else(empty, |(_, item)| item.clone()))
        }
        "sort" => {
            let mut bound = arguments.bind("sort", &["reverse", "case_sensitive", "attribute"])?;
            let from_end = bound.flag(0, false)?;
            let ignore_case = !bound.is_true(1, false);
            let attributes = match bound.take_some(2) {
                Some(Value::Str(s)) => {
                    s.as_str().split(',').map(|part| Some(Value::str(part))).collect()
                }
                other => vec![other],
            };
            let getters: Vec<Getter> = attributes
                .into_iter()
                .map(|attribute| Getter::new(attribute, ignore_case, None))
                .collect();
            let list = interpreter.collect(&value)?;
            let mut keys = Vec::with_capacity(list.items.len());
            for item in &list.items {
                let parts = getters.iter().map(|getter| getter.get(interpreter, item));
                keys.push(Value::list(parts.collect::<Result<_>>()?)?);
            }
            let order = sorted(keys.len(), |x, y| match from_end {
                false => less(&keys[x], &keys[y]),
                true => less(&keys[y], &keys[x]),
            })?;
            Value::list(order.into_iter().map(|at| list.items[at].clone()).collect())
        }
        "dictsort" => {
            dictsort(&value, arguments.bind("dictsort", &["case_sensitive", "by", "reverse"])?)
        }
        _ => groupby(interpreter, &value, arguments),
    }
}

fn reverse(interpreter: &mut Interpreter, value: Value) -> Result<Value> {
    if let Value::Str(s) = &value {
        return s
            .as_str()
            .char_indices()
            .rev()
            .fold(Ok(Builder::default()), |out: Result<Builder>, (at, c)| {
                let mut out = out?;
                out.push_part(s, at..at + c.len_utf8());
                Ok(out)
            })?
            .finish()
            .map(|text| Value::Str(text.with_markup(s.markup)));
    }
    if let Some(reversed) = reversed(&value)? {
        return Ok(reversed);
    }
    let list = interpreter.collect(&value)?;
    Value::list(list.items.iter().rev().cloned().collect())
}

fn join(interpreter: &mut Interpreter, value: &Value, arguments: Arguments) -> Result<Value> {
    let mut bound = arguments.bind("join", &["d", "attribute"])?;
    let separator = match bound.take(0) {
        Some(separator) => interpreter.to_str(&separator)?,
        None => "".into(),
    };
    let getter = bound.take_some(1).map(|attribute| Getter::new(Some(attribute), false, None));
    let mut items = interpreter.iterate(value)?;
    let mut out = Builder::default();
    let mut first = true;
    while let Some(mut item) = items.next(interpreter)? {
        if let Some(getter) = &getter {
            item = getter.get(interpreter, &item)?;
        }
        if !first {
            out.push(&separator);
        }
        first = false;
        out.push(&interpreter.to_str(&item)?);
        crate::python::error::charge(1)?;
        if out.is_full() {
            break;
        }
    }
    let text = out.finish()?;
    charge_bytes(text.len())?;
    Ok(Value::Str(text))
}

fn dictsort(value: &Value, mut bound: Bound) -> Result<Value> {
    let ignore_case = !bound.is_true(0, false);
    let by = bound.take(1).unwrap_or_else(|| Value::str("key"));
    let from_end = bound.flag(2, false)?;
    let place = match by.as_str().map(|s| s.as_str()) {
        Some("key") => 0,
        Some("value") => 1,
        _ => return Err(raised("You can only sort by either \"key\" or \"value\"")),
    };
    let dict: &Dict = match value {
        Value::Dict(dict) => dict,
        Value::Undefined(missing) => return Err(missing.error()),
        other => {
            let kind = other.type_name();
            return Err(raised(format!("'{kind}' object has no attribute 'items'")));
        }
    };
    let mut keys = Vec::with_capacity(dict.len());
    for (key, value) in dict.entries() {
        keys.push(match [key, value][place] {
            Value::Str(s) if ignore_case => Value::Str(change_case(s, "lower")?),
            other => other.clone(),
        });
    }
    let order = sorted(keys.len(), |x, y| match from_end {
        false => less(&keys[x], &keys[y]),
        true => less(&keys[y], &keys[x]),
    })?;
    let pairs = order.into_iter().map(|at| {
        let (key, value) = &dict.entries()[at];
        Value::tuple(vec![key.clone(), value.clone()])
    });
    Value::list(pairs.collect::<Result<_>>()?)
}

fn groupby(interpreter: &mut Interpreter, value: &Value, arguments: Arguments) -> Result<Value> {
    let mut bound = arguments.bind("groupby", &["attribute", "default", "case_sensitive"])?;
    let attribute = bound.required(0)?;
    let attribute = Some(attribute).filter(|attribute| !matches!(attribute, Value::None));
    let default = bound.take_some(1);
    let ignore_case = !bound.is_true(2, false);
    let getter = Getter::new(attribute.clone(), ignore_case, default.clone());
    let plain = Getter::new(attribute, false, default);
    let list = interpreter.collect(value)?;
    let mut keys = Vec::with_capacity(list.items.len());
    for item in &list.items {
        keys.push(getter.get(interpreter, item)?);
    }
    let order = sorted(keys.len(), |x, y| less(&keys[x], &keys[y]))?;
    let mut groups: Vec<(Value, Vec<Value>)> = Vec::new();
    for at in order {
        match groups.last_mut() {
            Some((key, items)) if equal(key, &keys[at])? => items.push(list.items[at].clone()),
            _ => groups.push((keys[at].clone(), vec![list.items[at].clone()])),
        }
    }
    let mut out = Vec::with_capacity(groups.len());
    for (mut key, items) in groups {
        if ignore_case {
            key = plain.get(interpreter, &items[0])?;
        }
        out.push(Value::group(key, Value::list(items)?)?);
    }
    Value::list(out)
}

/// The pairs of a dictionary, as a view.
pub fn pairs_of(value: &Value) -> Option<Value> {
    match value {
        Value::Dict(dict) => Some(Value::View(View::Items, dict.clone())),
        _ => None,
    }
}
