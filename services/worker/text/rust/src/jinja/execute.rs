// SPDX-License-Identifier: Apache-2.0
//! Statements.

use std::rc::Rc;
use std::sync::Arc;

use super::ast::{Expr, For, Stmt, Target};
use super::loops::{Items, Loop};
use super::macros::MacroValue;
use super::scope::Scope;
use super::{generators, Interpreter};
use crate::python::error::{charge, charge_bytes, raised, Result};
use crate::python::repr;
use crate::python::text::{too_long, Builder};
use crate::python::value::Value;

/// The way on after a statement.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    Next,
    Break,
    Continue,
}

impl Interpreter {
    pub fn execute(&mut self, body: &[Stmt], scope: &Rc<Scope>, out: &mut Builder) -> Result<Flow> {
        for statement in body {
            charge(1)?;
            let flow = self.statement(statement, scope, out)?;
            if out.is_full() {
                return Err(too_long());
            }
            if flow != Flow::Next {
                return Ok(flow);
            }
        }
        Ok(Flow::Next)
    }

    fn statement(
        &mut self,
        statement: &Stmt,
        scope: &Rc<Scope>,
        out: &mut Builder,
    ) -> Result<Flow> {
        match statement {
            Stmt::Text(text) => {
                charge_bytes(text.len())?;
                out.push(text);
            }
            Stmt::Output(expression) => {
                let value = self.evaluate(expression, scope)?;
                let text = self.to_str(&value)?;
                charge_bytes(text.len())?;
                out.push(&text);
            }
            Stmt::If(branches, otherwise) => {
                for (test, body) in branches {
                    if self.evaluate(test, scope)?.is_true() {
                        return self.execute(body, scope, out);
                    }
                }
                return self.execute(otherwise, scope, out);
            }
            Stmt::For(node) => {
                let items = self.evaluate(&node.items, scope)?;
                return self.run_loop(node, &items, scope, 0, out);
            }
            Stmt::Set(target, expression) => {
                let value = self.evaluate(expression, scope)?;
                self.assign(target, value, scope)?;
            }
            Stmt::SetBlock(target, filters, body) => {
                let (mut value, flow) = self.block(body, scope)?;
                if flow != Flow::Next {
                    return Ok(flow);
                }
                if let Some(filters) = filters {
                    value = self.filtered(filters, value, scope)?;
                }
                self.assign(target, value, scope)?;
            }
            Stmt::FilterBlock(filters, body) => {
                let (value, flow) = self.block(body, scope)?;
                if flow != Flow::Next {
                    return Ok(flow);
                }
                let value = self.filtered(filters, value, scope)?;
                out.push(&self.to_str(&value)?);
            }
            Stmt::Macro(node) => {
                let value = self.make_macro(node.clone(), scope);
                if let Some(name) = &node.name {
                    scope.set(name, value);
                }
            }
            Stmt::Call(call, body) => {
                let caller = self.make_macro(body.clone(), scope);
                let value = self.call_with_caller(call, caller, scope)?;
                out.push(&self.to_str(&value)?);
            }
            Stmt::With(values, body) => {
                let inner = Scope::new(Some(scope));
                for (target, expression) in values {
                    let value = self.evaluate(expression, scope)?;
                    self.assign(target, value, &inner)?;
                }
                return self.execute(body, &inner, out);
            }
            Stmt::Block(body) => {
                let top = self.top.clone();
                self.execute(body, &Scope::new(Some(&top)), out)?;
            }
            Stmt::Generation(body) => {
                self.execute(body, &Scope::new(Some(scope)), out)?;
            }
            Stmt::Break => return Ok(Flow::Break),
            Stmt::Continue => return Ok(Flow::Continue),
            Stmt::NoTemplate(tag) => {
                return Err(raised(format!("{tag}: there is no other template to load")));
            }
        }
        Ok(Flow::Next)
    }

    /// The text that a block renders, in a scope of its own.
    fn block(&mut self, body: &[Stmt], scope: &Rc<Scope>) -> Result<(Value, Flow)> {
        let mut out = Builder::default();
        let flow = self.execute(body, &Scope::new(Some(scope)), &mut out)?;
        Ok((Value::Str(out.finish()?), flow))
    }

    fn filtered(&mut self, filters: &Expr, text: Value, scope: &Rc<Scope>) -> Result<Value> {
        self.block_texts.push(text);
        let value = self.evaluate(filters, scope);
        self.block_texts.pop();
        value
    }

    fn make_macro(&mut self, node: Arc<super::ast::Macro>, scope: &Rc<Scope>) -> Value {
        if self.scopes.last().is_none_or(|last| !Rc::ptr_eq(last, scope)) {
            self.scopes.push(scope.clone());
        }
        Value::Macro(Rc::new(MacroValue { node, scope: scope.clone() }))
    }

    /// Runs a loop over `items`; for a recursive one `depth` says how deep it is.
    pub fn run_loop(
        &mut self,
        node: &Arc<For>,
        items: &Value,
        scope: &Rc<Scope>,
        depth: usize,
        out: &mut Builder,
    ) -> Result<Flow> {
        let mut source = self.iterate(items)?;
        if node.test.is_some() {
            let lazy = generators::condition(source, node.clone(), scope.clone(), items)?;
            source = self.iterate(&lazy)?;
        }
        let value_depth = items.depth_around()?;
        let recursive = node.recursive.then(|| (node.clone(), scope.clone()));
        let of = Rc::new(Loop::new(source, recursive, depth, value_depth));
        let name: Arc<str> = "loop".into();
        let mut any = false;
        while let Some(item) = of.advance(self)? {
            charge(1)?;
            any = true;
            let inner = Scope::new(Some(scope));
            if node.uses_loop {
                inner.set(&name, Value::Loop(of.clone()));
            }
            self.assign(&node.target, item, &inner)?;
            if self.execute(&node.body, &inner, out)? == Flow::Break {
                break;
            }
        }
        if any {
            return Ok(Flow::Next);
        }
        self.execute(&node.otherwise, &Scope::new(Some(scope)), out)
    }

    pub fn assign(&mut self, target: &Target, value: Value, scope: &Rc<Scope>) -> Result<()> {
        match target {
            Target::Name(name) => scope.set(name, value),
            Target::Attribute(name, attribute) => match self.lookup(name, scope)? {
                Value::Namespace(namespace) => namespace.set(attribute, value),
                _ => return Err(raised("cannot assign attribute on non-namespace object")),
            },
            Target::Tuple(targets) => {
                let items = self.collect(&value)?;
                if items.items.len() != targets.len() {
                    let (given, wanted) = (items.items.len(), targets.len());
                    return Err(raised(format!("{given} values to unpack, expected {wanted}")));
                }
                for (target, item) in targets.iter().zip(&items.items) {
                    self.assign(target, item.clone(), scope)?;
                }
            }
        }
        Ok(())
    }

    /// str(value), also of `loop`.
    pub fn to_str(&mut self, value: &Value) -> Result<crate::python::text::Str> {
        match value {
            Value::Loop(of) => {
                let text = format!("<LoopContext {}/{}>", of.index(), of.length(self)?);
                Ok(text.as_str().into())
            }
            _ => repr::to_str(value),
        }
    }

    /// iter(value)
    pub fn iterate(&mut self, value: &Value) -> Result<Items> {
        if let Value::Iterator(lazy) = value {
            return Ok(Items::Lazy(lazy.clone()));
        }
        match crate::python::attributes::items_of(value)? {
            Some(list) => Ok(Items::List(list, 0)),
            None => Err(raised(format!("'{}' object is not iterable", value.type_name()))),
        }
    }
}
