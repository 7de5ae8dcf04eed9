// SPDX-License-Identifier: Apache-2.0
//! Python's values, as far as a template can have them. Lists and dictionaries never change: the sandbox
//! of transformers refuses the methods that would.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use super::error::{charge, raised, Error, Result};
use super::text::Str;
use crate::jinja::loops::Loop;
use crate::jinja::macros::MacroValue;
use crate::jinja::Interpreter;

/// Lists in lists, iterators of iterators and the like are refused beyond this depth, so that reading and
/// freeing a value needs little stack.
pub const MAX_DEPTH: u32 = 1000;
/// Most items of a list.
pub const MAX_ITEMS: usize = if cfg!(fuzzing) { 1 << 16 } else { 1 << 20 };

#[derive(Clone)]
pub enum Value {
    Undefined(Rc<Missing>),
    None,
    Bool(bool),
    Int(i128),
    Float(f64),
    Str(Str),
    List(Rc<List>),
    Tuple(Rc<List>),
    Dict(Rc<Dict>),
    View(View, Rc<Dict>),
    Range(Range),
    Iterator(Rc<Lazy>),
    Namespace(Rc<Namespace>),
    Cycler(Rc<Cycler>),
    Joiner(Rc<Joiner>),
    Loop(Rc<Loop>),
    Macro(Rc<MacroValue>),
    /// A bound method: the object and the method's name.
    Method(Rc<(Value, String)>),
    Function(Function),
}

/// Why something is undefined.
pub enum Missing {
    Name(Arc<str>),
    Attribute { owner: &'static str, name: String },
    Unsafe { owner: &'static str, name: String },
    Other(&'static str),
}

impl Missing {
    pub fn error(&self) -> Error {
        raised(match self {
            Missing::Name(name) => format!("'{name}' is undefined"),
            Missing::Attribute { owner: "undefined", name } => format!("'{name}' is undefined"),
            Missing::Attribute { owner, name } => {
                format!("'{owner} object' has no attribute '{name}'")
            }
            Missing::Unsafe { owner, name } => {
                format!("access to attribute '{name}' of '{owner}' object is unsafe.")
            }
            Missing::Other(message) => (*message).to_owned(),
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum View {
    Keys,
    Values,
    Items,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    Range,
    Dict,
    Namespace,
    Cycler,
    Joiner,
    Lipsum,
    RaiseException,
    StrftimeNow,
}

pub struct List {
    pub items: Vec<Value>,
    /// A tuple of the filter groupby, whose items also have names: grouper, list.
    pub is_group: bool,
    depth: u32,
}

impl List {
    fn new(items: Vec<Value>, is_group: bool) -> Result<Rc<List>> {
        if items.len() > MAX_ITEMS {
            return Err(raised(format!("it takes more than {MAX_ITEMS} items")));
        }
        charge(1 + items.len())?;
        let depth = depth_above(items.iter())?;
        Ok(Rc::new(List { items, is_group, depth }))
    }
}

fn depth_above<'a>(values: impl Iterator<Item = &'a Value>) -> Result<u32> {
    let depth = 1 + values.map(Value::depth).max().unwrap_or(0);
    if depth > MAX_DEPTH {
        return Err(raised(format!("a value is nested more than {MAX_DEPTH} deep")));
    }
    Ok(depth)
}

/// A value as a key of a dict: values are the same key where these are equal.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Key {
    Undefined,
    None,
    Int(i128),
    Float(u64),
    Str(Arc<str>),
    Tuple(Vec<Key>),
    Object(*const ()),
}

impl Key {
    pub fn of(value: &Value) -> Result<Key> {
        charge(1)?;
        let address = |pointer: *const ()| Ok(Key::Object(pointer));
        Ok(match value {
            Value::Undefined(_) => Key::Undefined,
            Value::None => Key::None,
            Value::Bool(b) => Key::Int((*b).into()),
            Value::Int(n) => Key::Int(*n),
            Value::Float(x) if x.fract() == 0.0 && x.abs() < 1e38 => Key::Int(*x as i128),
            Value::Float(x) => Key::Float(x.to_bits()),
            Value::Str(s) => {
                charge(s.len() / 256)?;
                Key::Str(s.shared())
            }
            Value::Tuple(list) => {
                Key::Tuple(list.items.iter().map(Key::of).collect::<Result<_>>()?)
            }
            Value::Range(r) => Key::Tuple(vec![
                Key::Object(std::ptr::null()),
                Key::Int(r.len() as i128),
                Key::Int(if r.len() > 0 { r.start } else { 0 }),
                Key::Int(if r.len() > 1 { r.step } else { 0 }),
            ]),
            Value::Iterator(it) => return address(Rc::as_ptr(it).cast()),
            Value::Namespace(it) => return address(Rc::as_ptr(it).cast()),
            Value::Cycler(it) => return address(Rc::as_ptr(it).cast()),
            Value::Joiner(it) => return address(Rc::as_ptr(it).cast()),
            Value::Loop(it) => return address(Rc::as_ptr(it).cast()),
            Value::Macro(it) => return address(Rc::as_ptr(it).cast()),
            Value::Method(it) => return address(Rc::as_ptr(it).cast()),
            Value::Function(f) => return address((1 + *f as usize) as *const ()),
            Value::View(View::Values, dict) => return address(Rc::as_ptr(dict).cast()),
            Value::List(_) | Value::Dict(_) | Value::View(..) => {
                return Err(raised(format!("unhashable type: '{}'", value.type_name())));
            }
        })
    }
}

#[derive(Default)]
pub struct Dict {
    entries: Vec<(Value, Value)>,
    index: HashMap<Key, usize>,
    depth: u32,
}

impl Dict {
    pub fn new(entries: impl IntoIterator<Item = (Value, Value)>) -> Result<Rc<Dict>> {
        let mut dict = Dict::default();
        for (key, value) in entries {
            dict.insert(key, value)?;
        }
        dict.depth = depth_above(dict.entries.iter().flat_map(|(key, value)| [key, value]))?;
        Ok(Rc::new(dict))
    }

    fn insert(&mut self, key: Value, value: Value) -> Result<()> {
        let place = Key::of(&key)?;
        charge(2)?;
        match self.index.get(&place) {
            Some(at) => self.entries[*at].1 = value,
            None => {
                self.index.insert(place, self.entries.len());
                self.entries.push((key, value));
            }
        }
        Ok(())
    }

    /// Fails for a key that cannot be hashed.
    pub fn get(&self, key: &Value) -> Result<Option<&Value>> {
        Ok(self.index.get(&Key::of(key)?).map(|at| &self.entries[*at].1))
    }

    pub fn get_str(&self, key: &str) -> Option<&Value> {
        self.index.get(&Key::Str(key.into())).map(|at| &self.entries[*at].1)
    }

    pub fn entries(&self) -> &[(Value, Value)] {
        &self.entries
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }
}

#[derive(Clone, Copy)]
pub struct Range {
    pub start: i128,
    pub stop: i128,
    pub step: i128,
}

impl Range {
    pub fn len(&self) -> usize {
        let span = if self.step > 0 { self.stop - self.start } else { self.start - self.stop };
        if span <= 0 {
            return 0;
        }
        usize::try_from((span - 1) / self.step.abs() + 1).unwrap_or(usize::MAX)
    }

    pub fn at(&self, index: usize) -> Value {
        Value::Int(self.start + self.step * index as i128)
    }

    pub fn index_of(&self, n: i128) -> Option<usize> {
        let distance = n.checked_sub(self.start)?;
        if distance % self.step != 0 {
            return None;
        }
        usize::try_from(distance / self.step).ok().filter(|index| *index < self.len())
    }
}

/// The next items of a generator.
pub trait Step {
    fn next(&mut self, interpreter: &mut Interpreter) -> Result<Option<Value>>;
}

/// An iterator: a generator, or what reversed() gives. Its items can be read once.
pub struct Lazy {
    step: RefCell<Option<Box<dyn Step>>>,
    depth: u32,
}

impl Lazy {
    pub fn new(step: impl Step + 'static, source: &Value) -> Result<Value> {
        let depth = depth_above([source].into_iter())?;
        charge(1)?;
        Ok(Value::Iterator(Rc::new(Lazy { step: RefCell::new(Some(Box::new(step))), depth })))
    }

    pub fn next(&self, interpreter: &mut Interpreter) -> Result<Option<Value>> {
        charge(1)?;
        let Ok(mut step) = self.step.try_borrow_mut() else {
            return Err(raised("generator already executing"));
        };
        let Some(running) = step.as_mut() else { return Ok(None) };
        let next = running.next(interpreter);
        // A generator that has ended or failed has no more items.
        if !matches!(next, Ok(Some(_))) {
            *step = None;
        }
        next
    }
}

#[derive(Default)]
pub struct Namespace {
    pub attributes: RefCell<Vec<(String, Value)>>,
}

impl Namespace {
    pub fn get(&self, name: &str) -> Option<Value> {
        let attributes = self.attributes.borrow();
        attributes.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone())
    }

    pub fn set(&self, name: &str, value: Value) {
        let mut attributes = self.attributes.borrow_mut();
        match attributes.iter_mut().find(|(key, _)| key == name) {
            Some(slot) => slot.1 = value,
            None => attributes.push((name.to_owned(), value)),
        }
    }
}

pub struct Cycler {
    pub items: Rc<List>,
    pub at: Cell<usize>,
}

pub struct Joiner {
    pub separator: Value,
    pub used: Cell<bool>,
}

impl Value {
    pub fn str(text: &str) -> Value {
        Value::Str(Str::template(text))
    }

    pub fn list(items: Vec<Value>) -> Result<Value> {
        List::new(items, false).map(Value::List)
    }

    pub fn tuple(items: Vec<Value>) -> Result<Value> {
        List::new(items, false).map(Value::Tuple)
    }

    pub fn group(grouper: Value, list: Value) -> Result<Value> {
        List::new(vec![grouper, list], true).map(Value::Tuple)
    }

    pub fn undefined(message: &'static str) -> Value {
        Value::Undefined(Rc::new(Missing::Other(message)))
    }

    pub fn as_str(&self) -> Option<&Str> {
        match self {
            Value::Str(s) => Some(s),
            _ => None,
        }
    }

    /// An integer or a boolean, which is one in Python.
    pub fn as_int(&self) -> Option<i128> {
        match self {
            Value::Int(n) => Some(*n),
            Value::Bool(b) => Some((*b).into()),
            _ => None,
        }
    }

    pub fn is_undefined(&self) -> bool {
        matches!(self, Value::Undefined(_))
    }

    fn depth(&self) -> u32 {
        match self {
            Value::List(list) | Value::Tuple(list) => list.depth,
            Value::Dict(dict) | Value::View(_, dict) => dict.depth,
            Value::Iterator(lazy) => lazy.depth,
            Value::Loop(of) => of.depth,
            Value::Cycler(cycler) => cycler.items.depth + 1,
            Value::Joiner(joiner) => joiner.separator.depth() + 1,
            Value::Method(method) => method.0.depth() + 1,
            _ => 0,
        }
    }

    /// The depth of a value that holds this one.
    pub fn depth_around(&self) -> Result<u32> {
        depth_above([self].into_iter())
    }

    pub fn type_name(&self) -> &'static str {
        match self {
            Value::Undefined(_) => "Undefined",
            Value::None => "NoneType",
            Value::Bool(_) => "bool",
            Value::Int(_) => "int",
            Value::Float(_) => "float",
            Value::Str(s) if s.markup => "Markup",
            Value::Str(_) => "str",
            Value::List(_) => "list",
            Value::Tuple(_) => "tuple",
            Value::Dict(_) => "dict",
            Value::View(View::Keys, _) => "dict_keys",
            Value::View(View::Values, _) => "dict_values",
            Value::View(View::Items, _) => "dict_items",
            Value::Range(_) => "range",
            Value::Iterator(_) => "generator",
            Value::Namespace(_) => "Namespace",
            Value::Cycler(_) => "Cycler",
            Value::Joiner(_) => "Joiner",
            Value::Loop(_) => "LoopContext",
            Value::Macro(_) => "Macro",
            Value::Method(_) => "builtin_function_or_method",
            Value::Function(Function::Range) => "function",
            Value::Function(_) => "type",
        }
    }

    /// len(), or nothing where Python has none.
    pub fn length(&self) -> Result<Option<usize>> {
        Ok(Some(match self {
            Value::Undefined(_) => 0,
            Value::Str(s) => {
                charge(s.len() / 256)?;
                s.num_chars()
            }
            Value::List(list) | Value::Tuple(list) => list.items.len(),
            Value::Dict(dict) | Value::View(_, dict) => dict.len(),
            Value::Range(range) => range.len(),
            _ => return Ok(None),
        }))
    }

    pub fn is_true(&self) -> bool {
        match self {
            Value::Undefined(_) | Value::None => false,
            Value::Bool(b) => *b,
            Value::Int(n) => *n != 0,
            Value::Float(x) => *x != 0.0,
            Value::Str(s) => !s.is_empty(),
            Value::List(list) | Value::Tuple(list) => !list.items.is_empty(),
            Value::Dict(dict) | Value::View(_, dict) => dict.len() > 0,
            Value::Range(range) => range.len() > 0,
            _ => true,
        }
    }
}
