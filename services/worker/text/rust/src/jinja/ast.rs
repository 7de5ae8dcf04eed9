// SPDX-License-Identifier: Apache-2.0
//! A parsed template.

use std::sync::Arc;

use crate::python::operators::{Binary, Compare};
use crate::python::text::Str;

pub enum Constant {
    None,
    Bool(bool),
    Int(i128),
    Float(f64),
    Str(Str),
}

pub enum Expr {
    Constant(Constant),
    Name(Arc<str>),
    Tuple(Vec<Expr>),
    List(Vec<Expr>),
    Dict(Vec<(Expr, Expr)>),
    /// test, then, else
    Condition(Box<(Expr, Expr)>, Option<Box<Expr>>),
    And(Box<(Expr, Expr)>),
    Or(Box<(Expr, Expr)>),
    Not(Box<Expr>),
    Negative(Box<Expr>),
    Positive(Box<Expr>),
    Binary(Binary, Box<(Expr, Expr)>),
    Concat(Vec<Expr>),
    Compare(Box<Expr>, Vec<(Compare, Expr)>),
    Attribute(Box<Expr>, String),
    Item(Box<(Expr, Expr)>),
    Slice(Box<Expr>, Box<[Option<Expr>; 3]>),
    Call(Box<Expr>, Box<Args>),
    Filter(Box<Expr>, String, Box<Args>),
    Test(Box<Expr>, String, Box<Args>),
    /// The text of a block that filters are applied to.
    BlockText,
}

#[derive(Default)]
pub struct Args {
    pub positional: Vec<Expr>,
    pub named: Vec<(Str, Expr)>,
    /// *args
    pub star: Option<Expr>,
    /// **kwargs
    pub double_star: Option<Expr>,
}

pub enum Target {
    Name(Arc<str>),
    /// The attribute of a namespace.
    Attribute(Arc<str>, String),
    Tuple(Vec<Target>),
}

impl Target {
    pub fn has(&self, name: &str) -> bool {
        match self {
            Target::Name(target) => &**target == name,
            Target::Attribute(..) => false,
            Target::Tuple(targets) => targets.iter().any(|target| target.has(name)),
        }
    }
}

impl Expr {
    /// Returns whether the value needs no variable, so that Jinja2 computes it while it compiles. With
    /// `perhaps` also where a condition decides whether it does.
    pub fn is_constant(&self, perhaps: bool) -> bool {
        let is = |expression: &Expr| expression.is_constant(perhaps);
        match self {
            Expr::Constant(_) => true,
            Expr::Name(_) | Expr::Call(..) | Expr::BlockText => false,
            Expr::Tuple(items) | Expr::List(items) | Expr::Concat(items) => items.iter().all(is),
            Expr::Dict(entries) => entries.iter().all(|(key, value)| is(key) && is(value)),
            Expr::Condition(of, _) if perhaps => is(&of.0),
            Expr::Condition(of, otherwise) => {
                is(&of.0) && is(&of.1) && otherwise.as_ref().is_none_or(|otherwise| is(otherwise))
            }
            Expr::And(of) | Expr::Or(of) if perhaps => is(&of.0),
            Expr::And(of) | Expr::Or(of) | Expr::Binary(_, of) | Expr::Item(of) => {
                is(&of.0) && is(&of.1)
            }
            Expr::Not(of) | Expr::Negative(of) | Expr::Positive(of) | Expr::Attribute(of, _) => {
                is(of)
            }
            Expr::Compare(first, rest) => is(first) && rest.iter().all(|(_, right)| is(right)),
            Expr::Slice(of, bounds) => is(of) && bounds.iter().flatten().all(is),
            Expr::Filter(of, _, args) | Expr::Test(of, _, args) => {
                is(of)
                    && args.star.is_none()
                    && args.double_star.is_none()
                    && args.positional.iter().all(is)
                    && args.named.iter().all(|(_, value)| is(value))
            }
        }
    }
}

pub enum Stmt {
    Text(Str),
    Output(Expr),
    If(Vec<(Expr, Vec<Stmt>)>, Vec<Stmt>),
    For(Arc<For>),
    Set(Target, Expr),
    /// The block's text, through filters where there are some.
    SetBlock(Target, Option<Expr>, Vec<Stmt>),
    Macro(Arc<Macro>),
    /// A call, and what it finds as `caller`.
    Call(Expr, Arc<Macro>),
    FilterBlock(Expr, Vec<Stmt>),
    With(Vec<(Target, Expr)>, Vec<Stmt>),
    /// `{% block %}`: it sees the variables of the template, not those around it.
    Block(Vec<Stmt>),
    /// `{% generation %}`
    Generation(Vec<Stmt>),
    Break,
    Continue,
    /// A statement that wants another template; there is none.
    NoTemplate(&'static str),
}

pub struct For {
    pub target: Target,
    pub items: Expr,
    pub test: Option<Expr>,
    pub recursive: bool,
    pub uses_loop: bool,
    pub body: Vec<Stmt>,
    pub otherwise: Vec<Stmt>,
}

pub struct Macro {
    /// Nothing for the body of `{% call %}`.
    pub name: Option<Arc<str>>,
    pub parameters: Vec<Arc<str>>,
    /// Those of the last parameters.
    pub defaults: Vec<Expr>,
    pub uses_caller: bool,
    /// `caller` is a parameter of its own.
    pub explicit_caller: bool,
    pub catches_kwargs: bool,
    pub catches_varargs: bool,
    pub body: Vec<Stmt>,
}
