// SPDX-License-Identifier: Apache-2.0
//! Expressions and calls.

use std::rc::Rc;
use std::sync::Arc;

use super::ast::{Args, Constant, Expr};
use super::scope::Scope;
use super::{filters, globals, tests, Interpreter};
use crate::python::arguments::Arguments;
use crate::python::attributes;
use crate::python::error::{charge, charge_bytes, raised, refused, Result};
use crate::python::operators::{self, Binary, Compare};
use crate::python::text::{Builder, Str};
use crate::python::value::{Dict, List, Missing, Value};
use crate::python::{str_format, str_methods};

impl Interpreter {
    pub fn lookup(&mut self, name: &Arc<str>, scope: &Rc<Scope>) -> Result<Value> {
        if let Some(value) = scope.get(name) {
            return Ok(value);
        }
        if let Some(value) = self.variables.get(&**name) {
            return Ok(value.clone());
        }
        if &**name == "self" {
            return Err(refused("the variable self"));
        }
        Ok(match globals::global(name) {
            Some(function) => Value::Function(function),
            None => Value::Undefined(Rc::new(Missing::Name(name.clone()))),
        })
    }

    pub fn evaluate(&mut self, expression: &Expr, scope: &Rc<Scope>) -> Result<Value> {
        charge(1)?;
        match expression {
            Expr::Constant(constant) => Ok(match constant {
                Constant::None => Value::None,
                Constant::Bool(b) => Value::Bool(*b),
                Constant::Int(n) => Value::Int(*n),
                Constant::Float(x) => Value::Float(*x),
                Constant::Str(s) => Value::Str(s.clone()),
            }),
            Expr::Name(name) => self.lookup(name, scope),
            Expr::Tuple(items) => Value::tuple(self.evaluate_all(items, scope)?),
            Expr::List(items) => Value::list(self.evaluate_all(items, scope)?),
            Expr::Dict(entries) => {
                let mut values = Vec::with_capacity(entries.len());
                for (key, value) in entries {
                    values.push((self.evaluate(key, scope)?, self.evaluate(value, scope)?));
                }
                Ok(Value::Dict(Dict::new(values)?))
            }
            Expr::Condition(of, otherwise) => {
                if self.evaluate(&of.0, scope)?.is_true() {
                    return self.evaluate(&of.1, scope);
                }
                match otherwise {
                    Some(otherwise) => self.evaluate(otherwise, scope),
                    None => Ok(Value::undefined(
                        "the inline if-expression evaluated to false and no else section was defined.",
                    )),
                }
            }
            Expr::And(of) => {
                let left = self.evaluate(&of.0, scope)?;
                if !left.is_true() {
                    return Ok(left);
                }
                self.evaluate(&of.1, scope)
            }
            Expr::Or(of) => {
                let left = self.evaluate(&of.0, scope)?;
                if left.is_true() {
                    return Ok(left);
                }
                self.evaluate(&of.1, scope)
            }
            Expr::Not(of) => Ok(Value::Bool(!self.evaluate(of, scope)?.is_true())),
            Expr::Negative(of) => operators::negative(&self.evaluate(of, scope)?),
            Expr::Positive(of) => operators::positive(&self.evaluate(of, scope)?),
            Expr::Binary(operator, of) => {
                let left = self.evaluate(&of.0, scope)?;
                let right = self.evaluate(&of.1, scope)?;
                // Jinja2 writes `-2 ** x` for a constant to the power of a variable, and Python reads
                // -(2 ** x).
                if *operator == Binary::Pow && of.0.is_constant(false) && !of.1.is_constant(false) {
                    let zero = Value::Int(0);
                    if !matches!(left, Value::Str(_))
                        && operators::less(&left, &zero).unwrap_or(false)
                    {
                        let power =
                            operators::binary(*operator, &operators::negative(&left)?, &right)?;
                        return operators::negative(&power);
                    }
                }
                let value = operators::binary(*operator, &left, &right)?;
                charge_value(&value)?;
                Ok(value)
            }
            Expr::Concat(parts) => {
                let values = self.evaluate_all(parts, scope)?;
                let mut out = Builder::default();
                for value in &values {
                    out.push(&self.to_str(value)?);
                }
                let text = out.finish()?;
                charge_bytes(text.len())?;
                Ok(Value::Str(text))
            }
            Expr::Compare(first, rest) => {
                let mut left = self.evaluate(first, scope)?;
                for (operator, right) in rest {
                    let right = self.evaluate(right, scope)?;
                    let holds = match operator {
                        Compare::In => self.contains(&right, &left)?,
                        Compare::NotIn => !self.contains(&right, &left)?,
                        operator => operators::compare(*operator, &left, &right)?,
                    };
                    if !holds {
                        return Ok(Value::Bool(false));
                    }
                    left = right;
                }
                Ok(Value::Bool(true))
            }
            Expr::Attribute(object, name) => {
                let object = self.evaluate(object, scope)?;
                self.attribute(&object, name)
            }
            Expr::Item(of) => {
                let object = self.evaluate(&of.0, scope)?;
                let key = self.evaluate(&of.1, scope)?;
                self.item(&object, &key)
            }
            Expr::Slice(expression, bounds) => {
                let object = self.evaluate(expression, scope)?;
                let mut values = [None, None, None];
                for (value, bound) in values.iter_mut().zip(bounds.iter()) {
                    if let Some(bound) = bound {
                        *value = Some(self.evaluate(bound, scope)?);
                    }
                }
                let value = attributes::slice(&object, values).map_err(|error| {
                    // Jinja2 finds nothing where it computes a constant, and else fails.
                    match expression.is_constant(true) {
                        true => refused("a wrong slice of a constant"),
                        false => error,
                    }
                })?;
                charge_value(&value)?;
                Ok(value)
            }
            Expr::Call(callee, args) => {
                let callee = self.evaluate(callee, scope)?;
                let arguments = self.arguments(args, scope)?;
                self.call(&callee, arguments)
            }
            Expr::Filter(value, name, args) => {
                let value = self.evaluate(value, scope)?;
                let arguments = self.arguments(args, scope)?;
                self.filter(name, value, arguments)
            }
            Expr::Test(value, name, args) => {
                let value = self.evaluate(value, scope)?;
                let arguments = self.arguments(args, scope)?;
                self.test(name, &value, arguments).map(Value::Bool)
            }
            Expr::BlockText => match self.block_texts.last() {
                Some(text) => Ok(text.clone()),
                None => Err(raised("no block to filter")),
            },
        }
    }

    fn evaluate_all(&mut self, expressions: &[Expr], scope: &Rc<Scope>) -> Result<Vec<Value>> {
        expressions.iter().map(|expression| self.evaluate(expression, scope)).collect()
    }

    fn arguments(&mut self, args: &Args, scope: &Rc<Scope>) -> Result<Arguments> {
        let mut arguments = Arguments {
            positional: self.evaluate_all(&args.positional, scope)?,
            named: Vec::with_capacity(args.named.len()),
        };
        if let Some(star) = &args.star {
            let star = self.evaluate(star, scope)?;
            arguments.positional.extend(self.collect(&star)?.items.iter().cloned());
        }
        for (name, value) in &args.named {
            arguments.named.push((name.clone(), self.evaluate(value, scope)?));
        }
        if let Some(double_star) = &args.double_star {
            let Value::Dict(dict) = self.evaluate(double_star, scope)? else {
                return Err(raised("argument after ** must be a mapping"));
            };
            for (key, value) in dict.entries() {
                let Value::Str(key) = key else { return Err(raised("keywords must be strings")) };
                if arguments.named.iter().any(|(name, _)| name.as_str() == key.as_str()) {
                    let key = key.as_str();
                    return Err(raised(format!(
                        "got multiple values for keyword argument '{key}'"
                    )));
                }
                charge(arguments.named.len())?;
                arguments.named.push((key.clone(), value.clone()));
            }
        }
        Ok(arguments)
    }

    pub fn call_with_caller(
        &mut self,
        call: &Expr,
        caller: Value,
        scope: &Rc<Scope>,
    ) -> Result<Value> {
        let Expr::Call(callee, args) = call else { return Err(raised("expected call")) };
        let callee = self.evaluate(callee, scope)?;
        let mut arguments = self.arguments(args, scope)?;
        arguments.named.push((Str::from("caller"), caller));
        self.call(&callee, arguments)
    }

    pub fn call(&mut self, callee: &Value, arguments: Arguments) -> Result<Value> {
        charge(1)?;
        let value = match callee {
            Value::Undefined(missing) => return Err(missing.error()),
            Value::Method(method) => self.call_method(&method.0, &method.1, arguments)?,
            Value::Macro(of) => self.call_macro(of, arguments)?,
            Value::Loop(of) => of.call(arguments, self)?,
            Value::Function(function) => self.call_global(*function, arguments)?,
            Value::Joiner(joiner) => {
                arguments.bind("joiner", &[])?;
                match joiner.used.replace(true) {
                    false => Value::str(""),
                    true => joiner.separator.clone(),
                }
            }
            other => return Err(raised(format!("'{}' object is not callable", other.type_name()))),
        };
        charge_value(&value)?;
        Ok(value)
    }

    fn call_method(&mut self, object: &Value, name: &str, arguments: Arguments) -> Result<Value> {
        let Value::Str(text) = object else {
            return match object {
                Value::Loop(of) => of.call_method(name, arguments),
                _ => attributes::call_method(object, name, arguments),
            };
        };
        match name {
            "join" => {
                let items = arguments.bind("str.join", &[""])?.required(0)?;
                let items = self.collect(&items)?;
                if text.markup || items.items.iter().any(|i| i.as_str().is_some_and(|s| s.markup)) {
                    if text.markup {
                        return Err(refused("Markup.join"));
                    }
                }
                str_methods::join(text, &items.items).map(Value::Str)
            }
            "format" => str_format::call(text, &arguments).map(Value::Str),
            "format_map" => {
                let mapping = arguments.bind("str.format_map", &[""])?.required(0)?;
                let Value::Dict(dict) = mapping else {
                    return Err(refused("str.format_map of what is no dictionary"));
                };
                let mut named = Arguments::default();
                for (key, value) in dict.entries() {
                    if let Value::Str(key) = key {
                        named.named.push((key.clone(), value.clone()));
                    }
                }
                str_format::call(text, &named).map(Value::Str)
            }
            _ => str_methods::call(text, name, arguments),
        }
    }

    pub fn attribute(&mut self, object: &Value, name: &str) -> Result<Value> {
        if let Value::Loop(of) = object {
            if let Some(value) = of.attribute(name, self)? {
                return Ok(value);
            }
            if name == "cycle" || name == "changed" {
                return Ok(Value::Method(Rc::new((object.clone(), name.to_owned()))));
            }
            return Err(raised(format!("'loop' has no attribute '{name}'")));
        }
        attributes::attribute(object, name)
    }

    pub fn item(&mut self, object: &Value, key: &Value) -> Result<Value> {
        match (object, key) {
            (Value::Loop(_), Value::Str(name)) => self.attribute(object, name.as_str()),
            _ => attributes::item(object, key),
        }
    }

    /// `item in container`
    pub fn contains(&mut self, container: &Value, item: &Value) -> Result<bool> {
        if let Value::Iterator(lazy) = container {
            while let Some(value) = lazy.next(self)? {
                if operators::equal(&value, item)? {
                    return Ok(true);
                }
            }
            return Ok(false);
        }
        operators::contains(container, item)
    }

    /// list(value)
    pub fn collect(&mut self, value: &Value) -> Result<Rc<List>> {
        let mut items = self.iterate(value)?;
        if let super::loops::Items::List(list, 0) = &items {
            return Ok(list.clone());
        }
        match Value::list(items.rest(self)?)? {
            Value::List(list) => Ok(list),
            _ => Err(raised("no list")),
        }
    }

    pub fn filter(&mut self, name: &str, value: Value, arguments: Arguments) -> Result<Value> {
        charge_value(&value)?;
        let result = filters::apply(self, name, value, arguments)?;
        charge_value(&result)?;
        Ok(result)
    }

    pub fn test(&mut self, name: &str, value: &Value, arguments: Arguments) -> Result<bool> {
        charge_value(value)?;
        tests::apply(self, name, value, arguments)
    }
}

/// The steps of reading or making a value once.
fn charge_value(value: &Value) -> Result<()> {
    match value {
        Value::Str(s) => charge_bytes(s.len()),
        Value::List(list) | Value::Tuple(list) => charge(1 + list.items.len() / 64),
        _ => charge(1),
    }
}
