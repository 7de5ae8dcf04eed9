// SPDX-License-Identifier: Apache-2.0
//! Jinja2 as transformers sets it up: the sandbox whose lists and dictionaries do not change, trim_blocks,
//! lstrip_blocks, loop controls, `{% generation %}`, `tojson`, `raise_exception` and `strftime_now`.

mod ast;
pub mod contents;
mod evaluate;
mod execute;
mod expressions;
mod filters;
mod generators;
mod globals;
mod lexer;
mod list_filters;
pub mod loops;
pub mod macros;
mod parser;
mod scope;
mod tests;
mod text_filters;

use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;
use std::sync::Arc;

use crate::python::error::{raised, set_steps, Result};
use crate::python::text::{Builder, Str};
use crate::python::value::{Namespace, Value};
use contents::Contents;
use scope::Scope;

/// Most macros inside macros, and recursions of loops.
const MAX_RECURSION: usize = 100;

/// A template that can be rendered on any thread.
pub struct Template {
    body: Vec<ast::Stmt>,
    names: BTreeSet<Arc<str>>,
}

impl Template {
    /// Fails with the line where the template is none.
    pub fn parse(source: &str) -> Result<Template> {
        let (body, names) = parser::parse(source)?;
        Ok(Template { body, names })
    }

    /// The names that may be variables which a rendering is given: those that the template reads and that
    /// Jinja2 has nothing for. Some of them it sets itself.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let own = |name: &&str| {
            globals::global(name).is_some()
                || ["self", "loop", "caller", "kwargs", "varargs"].contains(name)
        };
        self.names.iter().map(|name| &**name).filter(move |name| !own(name))
    }

    /// What its syntax tells of the contents of messages. Needs a large stack.
    pub fn contents(&self) -> Contents {
        Contents::of(&self.body)
    }

    /// Renders in at most `steps` steps. Needs a large stack: see `crate::template`.
    pub fn render(&self, variables: HashMap<String, Value>, now: i64, steps: u64) -> Result<Str> {
        set_steps(steps);
        let mut interpreter = Interpreter {
            variables,
            now,
            recursion: 0,
            block_texts: Vec::new(),
            namespaces: Vec::new(),
            scopes: Vec::new(),
            top: Scope::new(None),
        };
        let mut out = Builder::default();
        let top = interpreter.top.clone();
        let result = interpreter.execute(&self.body, &top, &mut out);
        drop(top);
        interpreter.clear();
        result?;
        out.finish()
    }
}

/// One rendering.
pub struct Interpreter {
    /// The variables that the template is given.
    variables: HashMap<String, Value>,
    /// Unix time of the template's clock.
    now: i64,
    recursion: usize,
    /// The texts of the blocks that filters are applied to.
    block_texts: Vec<Value>,
    /// Values that can hold themselves are emptied in the end: nothing else would free them.
    namespaces: Vec<Rc<Namespace>>,
    scopes: Vec<Rc<Scope>>,
    top: Rc<Scope>,
}

impl Interpreter {
    /// Runs `work` one macro deeper.
    fn deeper<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.recursion >= MAX_RECURSION {
            return Err(raised(format!("macros are nested more than {MAX_RECURSION} deep")));
        }
        self.recursion += 1;
        let result = work(self);
        self.recursion -= 1;
        result
    }

    fn clear(&mut self) {
        for namespace in &self.namespaces {
            let attributes = namespace.attributes.take();
            drop(attributes);
        }
        for scope in &self.scopes {
            scope.clear();
        }
        self.top.clear();
    }
}
