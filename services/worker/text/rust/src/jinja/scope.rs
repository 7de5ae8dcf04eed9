// SPDX-License-Identifier: Apache-2.0
//! The variables of a block, and of those around it.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use crate::python::value::Value;

pub struct Scope {
    variables: RefCell<Vec<(Arc<str>, Value)>>,
    parent: Option<Rc<Scope>>,
}

impl Scope {
    pub fn new(parent: Option<&Rc<Scope>>) -> Rc<Scope> {
        Rc::new(Scope { variables: RefCell::new(Vec::new()), parent: parent.cloned() })
    }

    pub fn get(&self, name: &str) -> Option<Value> {
        let mut scope = self;
        loop {
            let variables = scope.variables.borrow();
            if let Some((_, value)) = variables.iter().find(|(key, _)| **key == *name) {
                return Some(value.clone());
            }
            drop(variables);
            scope = scope.parent.as_ref()?;
        }
    }

    pub fn set(&self, name: &Arc<str>, value: Value) {
        let mut variables = self.variables.borrow_mut();
        match variables.iter_mut().find(|(key, _)| key == name) {
            Some(slot) => slot.1 = value,
            None => variables.push((name.clone(), value)),
        }
    }

    pub fn clear(&self) {
        let variables = self.variables.take();
        drop(variables);
    }
}
