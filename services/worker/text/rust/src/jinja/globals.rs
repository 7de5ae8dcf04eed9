// SPDX-License-Identifier: Apache-2.0
//! Functions that every template has.

use std::cell::Cell;
use std::rc::Rc;

use chrono::DateTime;

use super::Interpreter;
use crate::python::arguments::Arguments;
use crate::python::error::{raised, refused, Result};
use crate::python::value::{Cycler, Dict, Function, Joiner, Namespace, Range, Value, View};

/// Most numbers of a range.
const MAX_RANGE: usize = 100_000;

pub fn global(name: &str) -> Option<Function> {
    Some(match name {
        "range" => Function::Range,
        "dict" => Function::Dict,
        "namespace" => Function::Namespace,
        "cycler" => Function::Cycler,
        "joiner" => Function::Joiner,
        "lipsum" => Function::Lipsum,
        "raise_exception" => Function::RaiseException,
        "strftime_now" => Function::StrftimeNow,
        _ => return None,
    })
}

impl Interpreter {
    pub fn call_global(&mut self, function: Function, arguments: Arguments) -> Result<Value> {
        match function {
            Function::Range => range(arguments),
            Function::Dict => self.dict(arguments).map(Value::Dict),
            Function::Namespace => {
                let dict = self.dict(arguments)?;
                let namespace = Rc::new(Namespace::default());
                for (key, value) in dict.entries() {
                    let Value::Str(key) = key else {
                        return Err(refused("a namespace with names that are no strings"));
                    };
                    crate::python::error::charge(namespace.attributes.borrow().len() / 8)?;
                    namespace.set(key.as_str(), value.clone());
                }
                self.namespaces.push(namespace.clone());
                Ok(Value::Namespace(namespace))
            }
            Function::Cycler => {
                if !arguments.named.is_empty() {
                    return Err(raised("cycler() takes no keyword arguments"));
                }
                if arguments.positional.is_empty() {
                    return Err(raised("at least one item has to be provided"));
                }
                match Value::list(arguments.positional)? {
                    Value::List(items) => {
                        Ok(Value::Cycler(Rc::new(Cycler { items, at: Cell::new(0) })))
                    }
                    _ => Err(raised("no items")),
                }
            }
            Function::Joiner => {
                let separator = arguments.bind("joiner", &["sep"])?.take(0);
                let separator = separator.unwrap_or_else(|| Value::str(", "));
                Ok(Value::Joiner(Rc::new(Joiner { separator, used: Cell::new(false) })))
            }
            Function::Lipsum => Err(refused("lipsum(), which is random,")),
            Function::RaiseException => {
                let message = arguments.bind("raise_exception", &["message"])?.required(0)?;
                Err(raised(self.to_str(&message)?.as_str()))
            }
            Function::StrftimeNow => {
                let format = arguments.bind("strftime_now", &["format"])?.required_str(0)?;
                self.strftime(format.as_str()).map(|text| Value::Str(format.marks_for(&text)))
            }
        }
    }

    fn strftime(&self, format: &str) -> Result<String> {
        use std::fmt::Write as _;
        let now = DateTime::from_timestamp(self.now, 0)
            .ok_or_else(|| raised("the time is outside what the clock of a template can tell"))?;
        let mut text = String::new();
        write!(text, "{}", now.naive_utc().format(format))
            .map_err(|_| raised("strftime_now: not a date format"))?;
        Ok(text)
    }

    /// dict(…)
    fn dict(&mut self, mut arguments: Arguments) -> Result<Rc<Dict>> {
        let mut entries = Vec::new();
        if arguments.positional.len() > 1 {
            return Err(raised("dict expected at most 1 argument"));
        }
        match arguments.positional.pop() {
            None => {}
            Some(Value::Undefined(missing)) => return Err(missing.error()),
            Some(Value::Dict(dict)) => entries.extend_from_slice(dict.entries()),
            Some(Value::View(View::Items, dict)) => entries.extend_from_slice(dict.entries()),
            Some(pairs) => {
                for pair in &self.collect(&pairs)?.items {
                    let pair = self.collect(pair)?;
                    let [key, value] = pair.items.as_slice() else {
                        return Err(raised("dictionary update sequence element is no pair"));
                    };
                    entries.push((key.clone(), value.clone()));
                }
            }
        }
        entries.extend(arguments.named.into_iter().map(|(key, value)| (Value::Str(key), value)));
        Dict::new(entries)
    }
}

fn range(arguments: Arguments) -> Result<Value> {
    let given = arguments.positional.len();
    let mut bound = arguments.bind("range", &["", "", ""])?;
    let (start, stop) = match given {
        1 => (0, bound.required_int(0)?),
        _ => (bound.required_int(0)?, bound.required_int(1)?),
    };
    let step = if given == 3 { bound.required_int(2)? } else { 1 };
    if step == 0 {
        return Err(raised("range() arg 3 must not be zero"));
    }
    const MOST: i128 = 1 << 100;
    if [start, stop, step].iter().any(|n| n.abs() > MOST) {
        return Err(raised("Range too big"));
    }
    let range = Range { start, stop, step };
    if range.len() > MAX_RANGE {
        return Err(raised(format!(
            "Range too big. The sandbox blocks ranges larger than MAX_RANGE ({MAX_RANGE})."
        )));
    }
    Ok(Value::Range(range))
}
