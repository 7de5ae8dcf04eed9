// SPDX-License-Identifier: Apache-2.0
//! What the syntax of a template tells of the contents of messages: where it takes them as lists of parts,
//! where as text, and for which roles.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use super::ast::{Args, Constant, Expr, Macro, Stmt, Target};
use crate::python::operators::Compare;

/// The roles of the messages that come to a place of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Roles {
    Only(BTreeSet<String>),
    AllBut(BTreeSet<String>),
}

impl Roles {
    fn has(&self, role: &str) -> bool {
        match self {
            Roles::Only(roles) => roles.contains(role),
            Roles::AllBut(roles) => !roles.contains(role),
        }
    }

    /// Those of both, or some more where they are many.
    fn and(&self, other: &Roles) -> Roles {
        match (self, other) {
            (Roles::Only(a), b) | (b, Roles::Only(a)) => {
                Roles::Only(a.iter().filter(|role| b.has(role)).cloned().collect())
            }
            (Roles::AllBut(a), Roles::AllBut(b)) if a.len() + b.len() > MAX_ROLES => {
                Roles::AllBut(a.clone())
            }
            (Roles::AllBut(a), Roles::AllBut(b)) => Roles::AllBut(a | b),
        }
    }

    fn not(&self) -> Roles {
        match self {
            Roles::Only(roles) => Roles::AllBut(roles.clone()),
            Roles::AllBut(roles) => Roles::Only(roles.clone()),
        }
    }
}

/// Filters whose result is text or a number, whatever they are given.
const NOT_LISTS: [&str; 18] = [
    "capitalize",
    "center",
    "count",
    "e",
    "escape",
    "format",
    "indent",
    "join",
    "length",
    "lower",
    "replace",
    "string",
    "striptags",
    "title",
    "tojson",
    "trim",
    "upper",
    "wordcount",
];
/// Most passes that look for names of contents, and most calls of macros that are looked into.
const MAX_PASSES: usize = 8;
const MAX_CALLS: usize = 64;
/// Most roles and places that are remembered, and most expressions that are looked at.
const MAX_ROLES: usize = 64;
const MAX_PLACES: usize = 64;
const MAX_WORK: usize = if cfg!(fuzzing) { 20_000 } else { 1_000_000 };

fn remember(places: &mut Vec<Roles>, roles: &Roles) {
    if places.len() < MAX_PLACES && !places.contains(roles) {
        places.push(roles.clone());
    }
}

#[derive(Default)]
pub struct Contents {
    parts: Vec<Roles>,
    texts: Vec<Roles>,
    /// The roles that conditions name.
    pub roles: BTreeSet<String>,
    /// The template's own text, and its strings.
    pub strings: BTreeSet<String>,
}

impl Contents {
    pub fn of(body: &[Stmt]) -> Contents {
        let mut reader = Reader::default();
        for _ in 0..MAX_PASSES {
            let known = reader.names.len() + reader.part_names.len() + reader.role_names.len();
            reader.found = Contents::default();
            reader.work.set(0);
            reader.statements(body, &Roles::AllBut(BTreeSet::new()));
            reader.calls();
            if known == reader.names.len() + reader.part_names.len() + reader.role_names.len() {
                break;
            }
        }
        reader.found
    }

    /// True where the content of this role's messages is read as parts and nowhere printed as text.
    pub fn wants_parts(&self, role: &str) -> bool {
        let any = |places: &[Roles]| places.iter().any(|roles| roles.has(role));
        any(&self.parts) && !any(&self.texts)
    }
}

#[derive(Default)]
struct Reader<'a> {
    found: Contents,
    /// Variables, attributes of namespaces and parameters that hold a content, a part of one, or a role.
    names: BTreeSet<String>,
    part_names: BTreeSet<String>,
    role_names: BTreeSet<String>,
    macros: BTreeMap<&'a str, &'a Macro>,
    /// Calls of macros that are to be looked into: the name, and the roles for which it is called.
    calls: Vec<(&'a str, Roles)>,
    work: Cell<usize>,
}

fn text_of(expression: &Expr) -> Option<&str> {
    match expression {
        Expr::Constant(Constant::Str(text)) => Some(text.as_str()),
        _ => None,
    }
}

/// The member that an expression reads: `of.name`, `of['name']`, `of.get('name')`.
fn member(expression: &Expr) -> Option<(&Expr, &str)> {
    match expression {
        Expr::Attribute(of, name) => Some((of, name)),
        Expr::Item(of) => Some((&of.0, text_of(&of.1)?)),
        Expr::Call(callee, args) => match &**callee {
            Expr::Attribute(of, get) if get == "get" => {
                Some((of, text_of(args.positional.first()?)?))
            }
            _ => None,
        },
        _ => None,
    }
}

fn all_of(args: &Args) -> impl Iterator<Item = &Expr> {
    let named = args.named.iter().map(|(_, value)| value);
    args.positional.iter().chain(named).chain(&args.star).chain(&args.double_star)
}

impl<'a> Reader<'a> {
    /// False where enough has been looked at.
    fn spend(&self) -> bool {
        self.work.set(self.work.get() + 1);
        self.work.get() <= MAX_WORK
    }

    fn is_content(&self, expression: &Expr) -> bool {
        if !self.spend() {
            return false;
        }
        if let Some((_, name)) = member(expression) {
            return name == "content" || self.names.contains(name);
        }
        match expression {
            Expr::Name(name) => self.names.contains(&**name),
            Expr::Filter(of, name, _) => {
                !NOT_LISTS.contains(&&**name)
                    && !["first", "last"].contains(&&**name)
                    && self.is_content(of)
            }
            Expr::Slice(of, _) => self.is_content(of),
            Expr::Condition(of, otherwise) => {
                self.is_content(&of.1) || otherwise.as_ref().is_some_and(|of| self.is_content(of))
            }
            Expr::And(of) | Expr::Or(of) => self.is_content(&of.0) || self.is_content(&of.1),
            _ => false,
        }
    }

    fn is_part(&self, expression: &Expr) -> bool {
        match expression {
            Expr::Name(name) => self.part_names.contains(&**name),
            Expr::Item(of) => text_of(&of.1).is_none() && self.is_content(&of.0),
            Expr::Filter(of, name, _) => {
                ["first", "last"].contains(&&**name) && self.is_content(of)
            }
            _ => false,
        }
    }

    fn is_role(&self, expression: &Expr) -> bool {
        match (member(expression), expression) {
            (Some((_, name)), _) => name == "role",
            (None, Expr::Name(name)) => self.role_names.contains(&**name),
            _ => false,
        }
    }

    /// The roles for which a condition holds, and whether it says nothing else.
    fn condition(&self, expression: &Expr) -> Option<(Roles, bool)> {
        if !self.spend() {
            return None;
        }
        let set = |texts: &[Expr]| -> Option<BTreeSet<String>> {
            let texts = texts.iter().take(MAX_ROLES);
            texts.map(|text| text_of(text).map(str::to_owned)).collect()
        };
        match expression {
            Expr::Compare(first, rest) => {
                let [(compare, second)] = &rest[..] else { return None };
                let (role, other) = match self.is_role(first) {
                    true => (first.as_ref(), second),
                    false => (second, first.as_ref()),
                };
                if !self.is_role(role) {
                    return None;
                }
                let roles = match (compare, other) {
                    (Compare::Eq | Compare::Ne, _) => [text_of(other)?.to_owned()].into(),
                    (_, Expr::List(texts) | Expr::Tuple(texts)) => set(texts)?,
                    _ => return None,
                };
                match compare {
                    Compare::Eq | Compare::In => Some((Roles::Only(roles), true)),
                    Compare::Ne | Compare::NotIn => Some((Roles::AllBut(roles), true)),
                    _ => None,
                }
            }
            Expr::Not(of) => match self.condition(of)? {
                (roles, true) => Some((roles.not(), true)),
                _ => None,
            },
            Expr::And(of) => match (self.condition(&of.0), self.condition(&of.1)) {
                (Some((a, exact)), Some((b, also))) => Some((a.and(&b), exact && also)),
                (Some((roles, _)), None) | (None, Some((roles, _))) => Some((roles, false)),
                (None, None) => None,
            },
            Expr::Or(of) => {
                let ((a, exact), (b, also)) = (self.condition(&of.0)?, self.condition(&of.1)?);
                Some((a.not().and(&b.not()).not(), exact && also))
            }
            _ => None,
        }
    }

    fn statements(&mut self, body: &'a [Stmt], roles: &Roles) {
        for statement in body {
            if self.spend() {
                self.statement(statement, roles);
            }
        }
    }

    fn statement(&mut self, statement: &'a Stmt, roles: &Roles) {
        match statement {
            Stmt::Text(text) => {
                self.found.strings.insert(text.as_str().to_owned());
            }
            Stmt::Output(value) => {
                self.expression(value, roles);
                self.printed(value, roles);
            }
            Stmt::If(branches, otherwise) => {
                let mut rest = roles.clone();
                for (test, body) in branches {
                    self.expression(test, &rest);
                    match self.condition(test) {
                        Some((of, exact)) => {
                            self.statements(body, &rest.and(&of));
                            rest = if exact { rest.and(&of.not()) } else { rest };
                        }
                        None => self.statements(body, &rest),
                    }
                }
                self.statements(otherwise, &rest);
            }
            Stmt::For(of) => {
                self.expression(&of.items, roles);
                let mut inner = roles.clone();
                if let Some(test) = &of.test {
                    self.expression(test, roles);
                    if let Some((only, _)) = self.condition(test) {
                        inner = inner.and(&only);
                    }
                }
                if self.is_content(&of.items) {
                    remember(&mut self.found.parts, &inner);
                    if let Target::Name(name) = &of.target {
                        self.part_names.insert(name.to_string());
                    }
                }
                self.statements(&of.body, &inner);
                self.statements(&of.otherwise, roles);
            }
            Stmt::Set(target, value) => self.assign(target, value, roles),
            Stmt::With(values, body) => {
                values.iter().for_each(|(target, value)| self.assign(target, value, roles));
                self.statements(body, roles);
            }
            Stmt::SetBlock(_, filter, body) => {
                filter.iter().for_each(|filter| self.expression(filter, roles));
                self.statements(body, roles);
            }
            Stmt::FilterBlock(filter, body) => {
                self.expression(filter, roles);
                self.statements(body, roles);
            }
            Stmt::Macro(of) => {
                if let Some(name) = &of.name {
                    self.macros.insert(name, of);
                }
            }
            Stmt::Call(call, body) => {
                self.expression(call, roles);
                self.statements(&body.body, roles);
            }
            Stmt::Block(body) | Stmt::Generation(body) => self.statements(body, roles),
            Stmt::Break | Stmt::Continue | Stmt::NoTemplate(_) => {}
        }
    }

    fn assign(&mut self, target: &'a Target, value: &'a Expr, roles: &Roles) {
        self.expression(value, roles);
        let name = match target {
            Target::Name(name) => &**name,
            Target::Attribute(_, name) => name,
            Target::Tuple(_) => return,
        };
        self.bind(name, value);
    }

    fn bind(&mut self, name: &str, value: &Expr) {
        if self.is_content(value) {
            self.names.insert(name.to_owned());
        } else if self.is_part(value) {
            self.part_names.insert(name.to_owned());
        } else if self.is_role(value) {
            self.role_names.insert(name.to_owned());
        }
    }

    /// Looks into the macros that are called, each with the roles of the messages that it is called for.
    fn calls(&mut self) {
        let mut done: Vec<(&str, Roles)> = Vec::new();
        while let Some(call) = self.calls.pop() {
            if done.len() >= MAX_CALLS || done.contains(&call) {
                continue;
            }
            if let Some(of) = self.macros.get(call.0).copied() {
                self.statements(&of.body, &call.1);
            }
            done.push(call);
        }
    }

    /// A content in what is printed, not as an item or under a test, is text.
    fn printed(&mut self, expression: &Expr, roles: &Roles) {
        if self.is_content(expression) {
            remember(&mut self.found.texts, roles);
            return;
        }
        match expression {
            Expr::Binary(_, of) => {
                [&of.0, &of.1].into_iter().for_each(|of| self.printed(of, roles))
            }
            Expr::Concat(items) => items.iter().for_each(|of| self.printed(of, roles)),
            Expr::Condition(of, otherwise) => {
                self.printed(&of.1, roles);
                otherwise.iter().for_each(|of| self.printed(of, roles));
            }
            Expr::Filter(of, name, args) => match (&**name, self.is_content(of)) {
                ("join" | "first" | "last" | "length" | "count", true) => {}
                _ => {
                    self.printed(of, roles);
                    all_of(args).for_each(|of| self.printed(of, roles));
                }
            },
            Expr::Call(callee, _) => {
                if let Expr::Attribute(of, _) = &**callee {
                    self.printed(of, roles);
                }
            }
            _ => {}
        }
    }

    fn expression(&mut self, expression: &'a Expr, roles: &Roles) {
        if !self.spend() {
            return;
        }
        if let Some(text) = text_of(expression) {
            self.found.strings.insert(text.to_owned());
        }
        if member(expression).is_some_and(|(of, _)| self.is_part(of)) {
            remember(&mut self.found.parts, roles);
        }
        match expression {
            Expr::Constant(_) | Expr::Name(_) | Expr::BlockText => {}
            Expr::Tuple(items) | Expr::List(items) | Expr::Concat(items) => {
                items.iter().for_each(|of| self.expression(of, roles));
            }
            Expr::Dict(entries) => entries.iter().for_each(|(key, value)| {
                self.expression(key, roles);
                self.expression(value, roles);
            }),
            Expr::Condition(of, otherwise) => {
                self.expression(&of.0, roles);
                self.expression(&of.1, roles);
                otherwise.iter().for_each(|of| self.expression(of, roles));
            }
            Expr::And(of) | Expr::Or(of) | Expr::Binary(_, of) | Expr::Item(of) => {
                self.expression(&of.0, roles);
                self.expression(&of.1, roles);
            }
            Expr::Not(of) | Expr::Negative(of) | Expr::Positive(of) | Expr::Attribute(of, _) => {
                self.expression(of, roles);
            }
            Expr::Compare(first, rest) => {
                if let Some((Roles::Only(of) | Roles::AllBut(of), _)) = self.condition(expression) {
                    self.found.roles.extend(of);
                }
                self.expression(first, roles);
                rest.iter().for_each(|(_, of)| self.expression(of, roles));
            }
            Expr::Slice(of, bounds) => {
                self.expression(of, roles);
                bounds.iter().flatten().for_each(|of| self.expression(of, roles));
            }
            Expr::Call(callee, args) => {
                if let Expr::Name(name) = &**callee {
                    self.call(name, args, roles);
                }
                self.expression(callee, roles);
                all_of(args).for_each(|of| self.expression(of, roles));
            }
            Expr::Filter(of, name, args) => {
                let attribute = args.named.iter().any(|(name, _)| name.as_str() == "attribute");
                let by_attribute = ["selectattr", "rejectattr", "groupby"].contains(&&**name);
                if (attribute || by_attribute) && self.is_content(of) {
                    remember(&mut self.found.parts, roles);
                }
                self.expression(of, roles);
                all_of(args).for_each(|of| self.expression(of, roles));
            }
            Expr::Test(of, _, args) => {
                self.expression(of, roles);
                all_of(args).for_each(|of| self.expression(of, roles));
            }
        }
    }

    fn call(&mut self, name: &str, args: &'a Args, roles: &Roles) {
        let Some((name, of)) = self.macros.get_key_value(name).map(|(name, of)| (*name, *of))
        else {
            return;
        };
        for (parameter, value) in of.parameters.iter().zip(&args.positional) {
            self.bind(parameter, value);
        }
        for (parameter, value) in &args.named {
            self.bind(parameter.as_str(), value);
        }
        self.calls.push((name, roles.clone()));
    }
}
