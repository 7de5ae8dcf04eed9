// SPDX-License-Identifier: Apache-2.0
//! Macros, and the bodies of `{% call %}`.

use std::rc::Rc;
use std::sync::Arc;

use super::ast::Macro;
use super::scope::Scope;
use super::Interpreter;
use crate::python::arguments::Arguments;
use crate::python::error::{raised, Result};
use crate::python::text::Builder;
use crate::python::value::{Dict, Value};

pub struct MacroValue {
    pub node: Arc<Macro>,
    /// Where the macro stands.
    pub scope: Rc<Scope>,
}

impl MacroValue {
    pub fn repr(&self) -> Result<String> {
        Ok(match &self.node.name {
            Some(name) => format!("<Macro '{name}'>"),
            None => "<Macro anonymous>".to_owned(),
        })
    }

    fn name(&self) -> &str {
        self.node.name.as_deref().unwrap_or("caller")
    }

    pub fn attribute(&self, name: &str) -> Result<Option<Value>> {
        Ok(Some(match name {
            "name" => self.node.name.as_deref().map_or(Value::None, Value::str),
            "arguments" => {
                let names = self.node.parameters.iter().map(|name| Value::str(name));
                Value::tuple(names.collect())?
            }
            "catch_kwargs" => Value::Bool(self.node.catches_kwargs),
            "catch_varargs" => Value::Bool(self.node.catches_varargs),
            "caller" => Value::Bool(self.node.uses_caller || self.node.explicit_caller),
            "explicit_caller" => Value::Bool(self.node.explicit_caller),
            _ => return Ok(None),
        }))
    }
}

impl Interpreter {
    pub fn call_macro(&mut self, of: &Rc<MacroValue>, arguments: Arguments) -> Result<Value> {
        let node = &of.node;
        let Arguments { mut positional, mut named } = arguments;
        let mut take_named = |name: &str| {
            let place = named.iter().position(|(key, _)| key.as_str() == name)?;
            Some(named.remove(place).1)
        };
        let rest = match positional.len().checked_sub(node.parameters.len()) {
            Some(_) => positional.split_off(node.parameters.len()),
            None => Vec::new(),
        };
        let mut values: Vec<Option<Value>> = positional.into_iter().map(Some).collect();
        for name in &node.parameters[values.len()..] {
            values.push(take_named(name));
        }
        let caller = if node.uses_caller { take_named("caller") } else { None };
        if !node.catches_kwargs {
            if let Some((key, _)) = named.first() {
                let (name, key) = (of.name(), key.as_str());
                return Err(raised(format!("macro '{name}' takes no keyword argument '{key}'")));
            }
        }
        if !node.catches_varargs && !rest.is_empty() {
            let (name, most) = (of.name(), node.parameters.len());
            return Err(raised(format!("macro '{name}' takes not more than {most} argument(s)")));
        }

        let scope = Scope::new(Some(&of.scope));
        for (name, value) in node.parameters.iter().zip(&values) {
            let missing = || Value::undefined("a parameter was not provided");
            scope.set(name, value.clone().unwrap_or_else(missing));
        }
        if node.uses_caller {
            let none = || Value::undefined("No caller defined");
            let caller = caller.filter(|caller| !matches!(caller, Value::None));
            scope.set(&"caller".into(), caller.unwrap_or_else(none));
        }
        if node.catches_kwargs {
            let entries = named.into_iter().map(|(key, value)| (Value::Str(key), value));
            scope.set(&"kwargs".into(), Value::Dict(Dict::new(entries)?));
        }
        if node.catches_varargs {
            scope.set(&"varargs".into(), Value::tuple(rest)?);
        }
        self.deeper(|interpreter| {
            let first = node.parameters.len() - node.defaults.len();
            for (place, default) in (first..).zip(&node.defaults) {
                if values[place].is_none() {
                    let value = interpreter.evaluate(default, &scope)?;
                    scope.set(&node.parameters[place], value);
                }
            }
            let mut out = Builder::default();
            interpreter.execute(&node.body, &scope, &mut out)?;
            Ok(Value::Str(out.finish()?))
        })
    }
}
