// SPDX-License-Identifier: Apache-2.0
//! Iteration, and the variable `loop`.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use super::ast::For;
use super::scope::Scope;
use super::Interpreter;
use crate::python::arguments::Arguments;
use crate::python::error::{charge, raised, Result};
use crate::python::operators::equal;
use crate::python::text::Builder;
use crate::python::value::{Lazy, List, Value, MAX_ITEMS};

/// The rest of an iteration.
#[derive(Clone)]
pub enum Items {
    /// From this place on.
    List(Rc<List>, usize),
    Lazy(Rc<Lazy>),
}

impl Items {
    pub fn next(&mut self, interpreter: &mut Interpreter) -> Result<Option<Value>> {
        match self {
            Items::List(list, at) => {
                let item = list.items.get(*at).cloned();
                *at += usize::from(item.is_some());
                Ok(item)
            }
            Items::Lazy(lazy) => lazy.next(interpreter),
        }
    }

    pub fn rest(&mut self, interpreter: &mut Interpreter) -> Result<Vec<Value>> {
        let mut items = Vec::new();
        while let Some(item) = self.next(interpreter)? {
            charge(1)?;
            if items.len() >= MAX_ITEMS {
                return Err(raised(format!("it takes more than {MAX_ITEMS} items")));
            }
            items.push(item);
        }
        Ok(items)
    }
}

pub struct Loop {
    state: RefCell<State>,
    /// The loop and the scope around it, where it may call itself.
    recursive: Option<(Arc<For>, Rc<Scope>)>,
    level: usize,
    /// How deep the value is: see `Value`.
    pub depth: u32,
}

struct State {
    items: Items,
    /// Counted from 1.
    index: usize,
    current: Option<Value>,
    before: Option<Value>,
    /// An item that was looked at in advance.
    after: Option<Value>,
    length: Option<usize>,
    changed: Option<Vec<Value>>,
}

impl Loop {
    pub fn new(
        items: Items,
        recursive: Option<(Arc<For>, Rc<Scope>)>,
        level: usize,
        depth: u32,
    ) -> Loop {
        let length = match &items {
            Items::List(list, _) => Some(list.items.len()),
            Items::Lazy(_) => None,
        };
        let state = State {
            items,
            index: 0,
            current: None,
            before: None,
            after: None,
            length,
            changed: None,
        };
        Loop { state: RefCell::new(state), recursive, level, depth }
    }

    pub fn index(&self) -> usize {
        self.state.borrow().index
    }

    /// The next item that nobody looked at. The state is free while a generator runs.
    fn pull(&self, interpreter: &mut Interpreter) -> Result<Option<Value>> {
        let mut items = self.state.borrow().items.clone();
        let item = items.next(interpreter)?;
        self.state.borrow_mut().items = items;
        Ok(item)
    }

    pub fn advance(&self, interpreter: &mut Interpreter) -> Result<Option<Value>> {
        let looked_at = self.state.borrow_mut().after.take();
        let item = match looked_at {
            Some(item) => Some(item),
            None => self.pull(interpreter)?,
        };
        let Some(item) = item else { return Ok(None) };
        let mut state = self.state.borrow_mut();
        state.index += 1;
        state.before = state.current.replace(item.clone());
        Ok(Some(item))
    }

    fn look(&self, interpreter: &mut Interpreter) -> Result<Option<Value>> {
        if self.state.borrow().after.is_none() {
            let item = self.pull(interpreter)?;
            self.state.borrow_mut().after = item;
        }
        Ok(self.state.borrow().after.clone())
    }

    pub fn length(&self, interpreter: &mut Interpreter) -> Result<usize> {
        if let Some(length) = self.state.borrow().length {
            return Ok(length);
        }
        let mut items = self.state.borrow().items.clone();
        let rest = items.rest(interpreter)?;
        let mut state = self.state.borrow_mut();
        let length = rest.len() + state.index + usize::from(state.after.is_some());
        if let Value::List(list) = Value::list(rest)? {
            state.items = Items::List(list, 0);
        }
        state.length = Some(length);
        Ok(length)
    }

    /// The attribute of this name; nothing where there is none.
    pub fn attribute(&self, name: &str, interpreter: &mut Interpreter) -> Result<Option<Value>> {
        let index = self.index();
        let number = |n: usize| Ok(Some(Value::Int(n as i128)));
        match name {
            "index" => number(index),
            "index0" => Ok(Some(Value::Int(index as i128 - 1))),
            "revindex" => {
                let length = self.length(interpreter)? as i128;
                Ok(Some(Value::Int(length - index as i128 + 1)))
            }
            "revindex0" => {
                let length = self.length(interpreter)? as i128;
                Ok(Some(Value::Int(length - index as i128)))
            }
            "length" => number(self.length(interpreter)?),
            "depth" => number(self.level + 1),
            "depth0" => number(self.level),
            "first" => Ok(Some(Value::Bool(index == 1))),
            "last" => Ok(Some(Value::Bool(self.look(interpreter)?.is_none()))),
            "previtem" if index == 1 => Ok(Some(Value::undefined("there is no previous item"))),
            "previtem" => Ok(self.state.borrow().before.clone()),
            "nextitem" => {
                let next = self.look(interpreter)?;
                Ok(Some(next.unwrap_or_else(|| Value::undefined("there is no next item"))))
            }
            _ => Ok(None),
        }
    }

    /// loop.cycle(…) and loop.changed(…)
    pub fn call_method(&self, name: &str, arguments: Arguments) -> Result<Value> {
        if !arguments.named.is_empty() {
            return Err(raised(format!("loop.{name}() takes no keyword arguments")));
        }
        let values = arguments.positional;
        if name == "cycle" {
            if values.is_empty() {
                return Err(raised("no items for cycling given"));
            }
            let place = (self.index().max(1) - 1) % values.len();
            return Ok(values[place].clone());
        }
        let before = self.state.borrow_mut().changed.replace(values.clone());
        let Some(before) = before else { return Ok(Value::Bool(true)) };
        if before.len() != values.len() {
            return Ok(Value::Bool(true));
        }
        for (x, y) in before.iter().zip(&values) {
            if !equal(x, y)? {
                return Ok(Value::Bool(true));
            }
        }
        Ok(Value::Bool(false))
    }

    /// loop(items): the text of the same loop over `items`.
    pub fn call(&self, arguments: Arguments, interpreter: &mut Interpreter) -> Result<Value> {
        let Some((node, scope)) = &self.recursive else {
            return Err(raised(
                "The loop must have the 'recursive' marker to be called recursively.",
            ));
        };
        let items = arguments.bind("loop", &["iterable"])?.required(0)?;
        interpreter.deeper(|interpreter| {
            let mut out = Builder::default();
            interpreter.run_loop(node, &items, scope, self.level + 1, &mut out)?;
            Ok(Value::Str(out.finish()?))
        })
    }
}
