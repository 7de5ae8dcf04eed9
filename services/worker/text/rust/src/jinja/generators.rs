// SPDX-License-Identifier: Apache-2.0
//! Filters that are generators: they make their items when these are asked for, and once.

use std::collections::HashSet;
use std::rc::Rc;
use std::sync::Arc;

use super::ast::For;
use super::list_filters::{pairs_of, Getter};
use super::loops::Items;
use super::scope::Scope;
use super::Interpreter;
use crate::python::arguments::Arguments;
use crate::python::error::{charge, raised, Result};
use crate::python::operators::{equal, order};
use crate::python::value::{Key, Lazy, Step, Value, MAX_ITEMS};

/// Makes the generator of a filter. Like Python's, it looks at nothing before its first item.
pub fn filter(name: &str, value: Value, arguments: Arguments) -> Result<Value> {
    match name {
        "batch" | "slice" => {
            let mut bound = arguments.bind("batch", &["linecount", "fill_with"])?;
            let count = bound.required(0)?;
            let fill = bound.take_some(1);
            match name {
                "batch" => lazy(
                    &value,
                    Batch { source: Source::new(&value), count, fill, row: Vec::new() },
                ),
                _ => lazy(&value, Slices { source: Source::new(&value), count, fill, rows: None }),
            }
        }
        "items" => {
            arguments.bind("items", &[])?;
            lazy(&value, Pairs { source: Source::new(&value) })
        }
        "unique" => {
            let mut bound = arguments.bind("unique", &["case_sensitive", "attribute"])?;
            let ignore_case = !bound.is_true(0, false);
            let getter = Getter::new(bound.take_some(1), ignore_case, None);
            lazy(&value, Unique { source: Source::new(&value), getter, seen: HashSet::new() })
        }
        "map" => lazy(&value, Map { source: Source::new(&value), arguments, function: None }),
        _ => {
            let wanted = name.starts_with("select");
            let by_attribute = name.ends_with("attr");
            let source = Source::new(&value);
            lazy(&value, Select { source, arguments, wanted, by_attribute, function: None })
        }
    }
}

/// The items of a loop for which its condition holds.
pub fn condition(source: Items, node: Arc<For>, scope: Rc<Scope>, value: &Value) -> Result<Value> {
    lazy(value, Condition { source, node, scope })
}

fn lazy(value: &Value, step: impl Step + 'static) -> Result<Value> {
    Lazy::new(step, value)
}

/// The values that a generator reads, from its first item on.
struct Source {
    value: Option<Value>,
    items: Option<Items>,
}

impl Source {
    fn new(value: &Value) -> Source {
        Source { value: Some(value.clone()), items: None }
    }

    fn is_true(&self) -> bool {
        self.value.as_ref().is_none_or(Value::is_true)
    }

    fn next(&mut self, interpreter: &mut Interpreter) -> Result<Option<Value>> {
        charge(1)?;
        if let Some(value) = self.value.take() {
            self.items = Some(interpreter.iterate(&value)?);
        }
        match &mut self.items {
            Some(items) => items.next(interpreter),
            None => Ok(None),
        }
    }

    fn rest(&mut self, interpreter: &mut Interpreter) -> Result<Vec<Value>> {
        if let Some(value) = self.value.take() {
            self.items = Some(interpreter.iterate(&value)?);
        }
        match &mut self.items {
            Some(items) => items.rest(interpreter),
            None => Ok(Vec::new()),
        }
    }
}

struct Condition {
    source: Items,
    node: Arc<For>,
    scope: Rc<Scope>,
}

impl Step for Condition {
    fn next(&mut self, interpreter: &mut Interpreter) -> Result<Option<Value>> {
        while let Some(item) = self.source.next(interpreter)? {
            charge(1)?;
            let inner = Scope::new(Some(&self.scope));
            interpreter.assign(&self.node.target, item.clone(), &inner)?;
            let holds = match &self.node.test {
                Some(test) => interpreter.evaluate(test, &inner)?.is_true(),
                None => true,
            };
            if holds {
                return Ok(Some(item));
            }
        }
        Ok(None)
    }
}

struct Batch {
    source: Source,
    count: Value,
    fill: Option<Value>,
    row: Vec<Value>,
}

impl Step for Batch {
    fn next(&mut self, interpreter: &mut Interpreter) -> Result<Option<Value>> {
        while let Some(item) = self.source.next(interpreter)? {
            let full = equal(&Value::Int(self.row.len() as i128), &self.count)?;
            let row = full.then(|| std::mem::take(&mut self.row));
            self.row.push(item);
            if let Some(row) = row {
                return Value::list(row).map(Some);
            }
        }
        if self.row.is_empty() {
            return Ok(None);
        }
        let mut row = std::mem::take(&mut self.row);
        if let Some(fill) = &self.fill {
            let length = Value::Int(row.len() as i128);
            if order(&length, &self.count, "<")? == Some(std::cmp::Ordering::Less) {
                let Some(count) = self.count.as_int() else {
                    return Err(raised("can't multiply sequence by non-int of type 'float'"));
                };
                let count = usize::try_from(count).unwrap_or(usize::MAX);
                if count > MAX_ITEMS {
                    return Err(raised(format!("it takes more than {MAX_ITEMS} items")));
                }
                row.resize(count, fill.clone());
            }
        }
        Value::list(row).map(Some)
    }
}

struct Slices {
    source: Source,
    count: Value,
    fill: Option<Value>,
    /// The rows that are left, the last first.
    rows: Option<Vec<Value>>,
}

impl Slices {
    fn make(&mut self, interpreter: &mut Interpreter) -> Result<Vec<Value>> {
        let items = self.source.rest(interpreter)?;
        let Some(count) = self.count.as_int() else {
            return match &self.count {
                Value::Undefined(missing) => Err(missing.error()),
                _ => Err(raised("slice wants an integer")),
            };
        };
        if count == 0 {
            return Err(raised("integer division or modulo by zero"));
        }
        let Ok(count) = usize::try_from(count) else { return Ok(Vec::new()) };
        if count > MAX_ITEMS {
            return Err(raised(format!("it takes more than {MAX_ITEMS} items")));
        }
        let (each, extra) = (items.len() / count, items.len() % count);
        let mut rows = Vec::with_capacity(count);
        let mut begin = 0;
        for number in 0..count {
            let end = begin + each + usize::from(number < extra);
            let mut row = items[begin..end].to_vec();
            if let (Some(fill), true) = (&self.fill, number >= extra) {
                row.push(fill.clone());
            }
            rows.push(Value::list(row)?);
            begin = end;
        }
        rows.reverse();
        Ok(rows)
    }
}

impl Step for Slices {
    fn next(&mut self, interpreter: &mut Interpreter) -> Result<Option<Value>> {
        if self.rows.is_none() {
            self.rows = Some(self.make(interpreter)?);
        }
        Ok(self.rows.as_mut().and_then(Vec::pop))
    }
}

struct Pairs {
    source: Source,
}

impl Step for Pairs {
    fn next(&mut self, interpreter: &mut Interpreter) -> Result<Option<Value>> {
        if let Some(value) = &self.source.value {
            if !value.is_undefined() {
                let Some(pairs) = pairs_of(value) else {
                    return Err(raised("Can only get item pairs from a mapping."));
                };
                self.source.value = Some(pairs);
            }
        }
        self.source.next(interpreter)
    }
}

struct Unique {
    source: Source,
    getter: Getter,
    seen: HashSet<Key>,
}

impl Step for Unique {
    fn next(&mut self, interpreter: &mut Interpreter) -> Result<Option<Value>> {
        while let Some(item) = self.source.next(interpreter)? {
            let key = self.getter.get(interpreter, &item)?;
            if self.seen.insert(Key::of(&key)?) {
                return Ok(Some(item));
            }
        }
        Ok(None)
    }
}

/// The function that map and select apply to an item.
enum Function {
    Get(Getter),
    Call(Value, Arguments),
    Itself,
}

/// The name of a filter or test in an argument.
fn name_of(value: &Value) -> Result<&str> {
    match value {
        Value::Str(s) => Ok(s.as_str()),
        _ => Err(raised("the name of a filter or test is a string")),
    }
}

struct Map {
    source: Source,
    arguments: Arguments,
    function: Option<Function>,
}

impl Map {
    fn prepare(&mut self) -> Result<Function> {
        let Arguments { mut positional, mut named } = std::mem::take(&mut self.arguments);
        if !positional.is_empty() {
            let name = positional.remove(0);
            return Ok(Function::Call(name, Arguments { positional, named }));
        }
        let mut take = |name: &str| {
            let place = named.iter().position(|(key, _)| key.as_str() == name)?;
            Some(named.remove(place).1)
        };
        let Some(attribute) = take("attribute") else {
            return Err(raised("map requires a filter argument"));
        };
        let default = take("default").filter(|default| !matches!(default, Value::None));
        if let Some((key, _)) = named.first() {
            return Err(raised(format!("Unexpected keyword argument '{}'", key.as_str())));
        }
        let attribute = Some(attribute).filter(|attribute| !matches!(attribute, Value::None));
        Ok(Function::Get(Getter::new(attribute, false, default)))
    }
}

impl Step for Map {
    fn next(&mut self, interpreter: &mut Interpreter) -> Result<Option<Value>> {
        if self.function.is_none() {
            if !self.source.is_true() {
                return Ok(None);
            }
            self.function = Some(self.prepare()?);
        }
        let Some(item) = self.source.next(interpreter)? else { return Ok(None) };
        match &self.function {
            Some(Function::Get(getter)) => getter.get(interpreter, &item).map(Some),
            Some(Function::Call(name, arguments)) => {
                interpreter.filter(name_of(name)?, item, arguments.clone()).map(Some)
            }
            _ => Ok(Some(item)),
        }
    }
}

struct Select {
    source: Source,
    arguments: Arguments,
    wanted: bool,
    by_attribute: bool,
    function: Option<(Option<Getter>, Function)>,
}

impl Select {
    fn prepare(&mut self) -> Result<(Option<Getter>, Function)> {
        let Arguments { mut positional, named } = std::mem::take(&mut self.arguments);
        let mut getter = None;
        if self.by_attribute {
            if positional.is_empty() {
                return Err(raised("Missing parameter for attribute name"));
            }
            let attribute = positional.remove(0);
            let attribute = Some(attribute).filter(|a| !matches!(a, Value::None));
            getter = Some(Getter::new(attribute, false, None));
        }
        if positional.is_empty() {
            return Ok((getter, Function::Itself));
        }
        let name = positional.remove(0);
        Ok((getter, Function::Call(name, Arguments { positional, named })))
    }
}

impl Step for Select {
    fn next(&mut self, interpreter: &mut Interpreter) -> Result<Option<Value>> {
        if self.function.is_none() {
            if !self.source.is_true() {
                return Ok(None);
            }
            self.function = Some(self.prepare()?);
        }
        while let Some(item) = self.source.next(interpreter)? {
            let Some((getter, function)) = &self.function else { return Ok(None) };
            let value = match getter {
                Some(getter) => getter.get(interpreter, &item)?,
                None => item.clone(),
            };
            let holds = match function {
                Function::Call(name, arguments) => {
                    interpreter.test(name_of(name)?, &value, arguments.clone())?
                }
                _ => value.is_true(),
            };
            if holds == self.wanted {
                return Ok(Some(item));
            }
        }
        Ok(None)
    }
}
