// SPDX-License-Identifier: Apache-2.0
//! Jinja2's parser: statements.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::ast::{Expr, For, Macro, Stmt, Target};
use super::lexer::{tokenize, Token};
use crate::python::error::{raised, refused, Error, Result};
use crate::python::text::Str;

/// Most expressions inside expressions, and blocks inside blocks.
const MAX_NESTING: usize = 150;
/// Most operators of one expression.
const MAX_OPERATORS: usize = 2000;

/// A template's statements, and every name that an expression of it reads.
pub fn parse(source: &str) -> Result<(Vec<Stmt>, BTreeSet<Arc<str>>)> {
    let mut parser = Parser {
        tokens: tokenize(source)?,
        at: 0,
        nesting: 0,
        operators: 0,
        uses: Uses::default(),
        loops: 0,
        soft: 0,
        unknown: Vec::new(),
        names: BTreeSet::new(),
    };
    let body = parser.body(&[])?;
    match parser.unknown.first() {
        Some(message) => Err(raised(message)),
        None => Ok((body, parser.names)),
    }
}

/// How often names with a meaning of their own were read.
#[derive(Clone, Copy, Default, PartialEq)]
pub struct Uses {
    pub looping: usize,
    pub caller: usize,
    pub kwargs: usize,
    pub varargs: usize,
}

pub struct Parser {
    tokens: Vec<(Token, usize)>,
    at: usize,
    nesting: usize,
    operators: usize,
    pub uses: Uses,
    /// Loops around this place in the same function.
    loops: usize,
    /// Conditions around this place: there, unknown filters and tests fail only where they are used.
    pub soft: usize,
    pub unknown: Vec<String>,
    pub names: BTreeSet<Arc<str>>,
}

impl Parser {
    pub fn peek(&self) -> &Token {
        &self.tokens[self.at].0
    }

    pub fn look(&self) -> &Token {
        &self.tokens[(self.at + 1).min(self.tokens.len() - 1)].0
    }

    pub fn line(&self) -> usize {
        self.tokens[self.at].1
    }

    pub fn next(&mut self) -> Token {
        let token = self.tokens[self.at].0.clone();
        self.at = (self.at + 1).min(self.tokens.len() - 1);
        token
    }

    pub fn fail(&self, message: impl std::fmt::Display) -> Error {
        raised(format!("line {}: {message}", self.line()))
    }

    pub fn unexpected(&self) -> Error {
        let token = match self.peek() {
            Token::Data(_) => "text".to_owned(),
            Token::Name(name) => format!("'{name}'"),
            Token::Operator(operator) => format!("'{operator}'"),
            Token::Str(_) => "a string".to_owned(),
            Token::Int(_) | Token::Float(_) => "a number".to_owned(),
            Token::BlockBegin => "'{%'".to_owned(),
            Token::BlockEnd => "'%}'".to_owned(),
            Token::VariableBegin => "'{{'".to_owned(),
            Token::VariableEnd => "'}}'".to_owned(),
            Token::End => "the end of the template".to_owned(),
        };
        self.fail(format!("unexpected {token}"))
    }

    pub fn is_operator(&self, operator: &str) -> bool {
        matches!(self.peek(), Token::Operator(o) if *o == operator)
    }

    pub fn is_name(&self, name: &str) -> bool {
        matches!(self.peek(), Token::Name(n) if n == name)
    }

    pub fn skip_operator(&mut self, operator: &str) -> bool {
        let found = self.is_operator(operator);
        self.at += usize::from(found);
        found
    }

    pub fn skip_name(&mut self, name: &str) -> bool {
        let found = self.is_name(name);
        self.at += usize::from(found);
        found
    }

    pub fn expect_operator(&mut self, operator: &str) -> Result<()> {
        if self.skip_operator(operator) {
            return Ok(());
        }
        Err(self.fail(format!("expected '{operator}', but {}", self.unexpected())))
    }

    pub fn expect_name(&mut self) -> Result<String> {
        match self.peek() {
            Token::Name(_) => match self.next() {
                Token::Name(name) => Ok(name),
                _ => Err(self.unexpected()),
            },
            _ => Err(self.unexpected()),
        }
    }

    fn expect_block_end(&mut self) -> Result<()> {
        if *self.peek() != Token::BlockEnd {
            return Err(self.unexpected());
        }
        self.next();
        Ok(())
    }

    /// Runs `parse` one level deeper.
    pub fn nested<T>(&mut self, parse: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.nesting >= MAX_NESTING {
            return Err(self.fail(format!("nested more than {MAX_NESTING} deep")));
        }
        self.nesting += 1;
        let result = parse(self);
        self.nesting -= 1;
        result
    }

    /// Counts an operator, which makes the expression deeper.
    pub fn count_operator(&mut self) -> Result<()> {
        self.operators += 1;
        if self.operators > MAX_OPERATORS {
            return Err(self.fail(format!("an expression of more than {MAX_OPERATORS} operators")));
        }
        Ok(())
    }

    /// Statements up to one of the tags `ends`, which is not taken; up to the end for none.
    fn body(&mut self, ends: &[&str]) -> Result<Vec<Stmt>> {
        let mut body = Vec::new();
        loop {
            self.operators = 0;
            match self.peek() {
                Token::Data(_) => {
                    if let Token::Data(text) = self.next() {
                        body.push(Stmt::Text(Str::template(text)));
                    }
                }
                Token::VariableBegin => {
                    self.next();
                    body.push(Stmt::Output(self.tuple(true, &[])?));
                    if *self.peek() != Token::VariableEnd {
                        return Err(self.unexpected());
                    }
                    self.next();
                }
                Token::BlockBegin => {
                    self.next();
                    if ends.iter().any(|end| self.is_name(end)) {
                        return Ok(body);
                    }
                    let statement = self.nested(Self::statement)?;
                    body.extend(statement);
                    self.expect_block_end()?;
                }
                Token::End if ends.is_empty() => return Ok(body),
                _ => return Err(self.unexpected()),
            }
        }
    }

    /// The rest of a tag, and the statements up to one of the tags `ends`.
    fn statements(&mut self, ends: &[&str]) -> Result<Vec<Stmt>> {
        self.skip_operator(":");
        self.expect_block_end()?;
        self.body(ends)
    }

    /// Statements up to the tag `end`, which is taken.
    fn statements_to(&mut self, end: &str) -> Result<Vec<Stmt>> {
        let body = self.statements(&[end])?;
        self.next();
        Ok(body)
    }

    /// Like `statements_to`; conditions around do not count in there.
    fn inner_to(&mut self, end: &str) -> Result<Vec<Stmt>> {
        let soft = std::mem::take(&mut self.soft);
        let body = self.statements_to(end);
        self.soft = soft;
        body
    }

    /// The body of a function: it leaves no loop around it.
    fn function_to(&mut self, end: &str) -> Result<Vec<Stmt>> {
        let loops = std::mem::take(&mut self.loops);
        let body = self.inner_to(end);
        self.loops = loops;
        body
    }

    fn statement(&mut self) -> Result<Vec<Stmt>> {
        let tag = self.expect_name()?;
        Ok(vec![match tag.as_str() {
            "if" => self.parse_if()?,
            "for" => self.parse_for()?,
            "set" => self.parse_set()?,
            "macro" => self.parse_macro()?,
            "call" => self.parse_call()?,
            "filter" => {
                let filters = self.filters(Expr::BlockText, true)?;
                Stmt::FilterBlock(filters, self.inner_to("endfilter")?)
            }
            "with" => self.parse_with()?,
            "block" => self.parse_block()?,
            "generation" => Stmt::Generation(self.function_to("endgeneration")?),
            "print" => {
                let mut outputs = Vec::new();
                while *self.peek() != Token::BlockEnd {
                    if !outputs.is_empty() {
                        self.expect_operator(",")?;
                    }
                    outputs.push(Stmt::Output(self.expression()?));
                }
                return Ok(outputs);
            }
            "break" | "continue" if self.loops == 0 => {
                return Err(self.fail(format!("'{tag}' outside loop")));
            }
            "break" => Stmt::Break,
            "continue" => Stmt::Continue,
            "include" => self.no_template("include")?,
            "import" => self.no_template("import")?,
            "from" => self.no_template("from")?,
            "extends" => self.no_template("extends")?,
            "autoescape" => return Err(refused("the statement autoescape")),
            tag => return Err(self.fail(format!("Encountered unknown tag '{tag}'."))),
        }])
    }

    fn no_template(&mut self, tag: &'static str) -> Result<Stmt> {
        while !matches!(self.peek(), Token::BlockEnd | Token::End) {
            self.next();
        }
        Ok(Stmt::NoTemplate(tag))
    }

    fn parse_if(&mut self) -> Result<Stmt> {
        self.soft += 1;
        let mut branches = Vec::new();
        loop {
            let test = self.tuple(false, &[])?;
            let body = self.statements(&["elif", "else", "endif"])?;
            branches.push((test, body));
            let tag = self.expect_name()?;
            let otherwise = match tag.as_str() {
                "elif" => continue,
                "else" => self.statements_to("endif")?,
                _ => Vec::new(),
            };
            self.soft -= 1;
            return Ok(Stmt::If(branches, otherwise));
        }
    }

    fn parse_for(&mut self) -> Result<Stmt> {
        let target = self.target(true, false, &["in"])?;
        if target.has("loop") {
            return Err(self.fail("can't assign to the special variable loop"));
        }
        if !self.skip_name("in") {
            return Err(self.unexpected());
        }
        let items = self.tuple(false, &["recursive"])?;
        let soft = std::mem::take(&mut self.soft);
        let test = if self.skip_name("if") { Some(self.expression()?) } else { None };
        let recursive = self.skip_name("recursive");
        let before = self.uses.looping;
        self.loops += 1;
        let body = self.statements(&["endfor", "else"])?;
        self.loops -= 1;
        let uses_loop = recursive || self.uses.looping > before;
        let otherwise = match self.expect_name()?.as_str() {
            "else" => self.statements_to("endfor")?,
            _ => Vec::new(),
        };
        self.soft = soft;
        let node = For { target, items, test, recursive, uses_loop, body, otherwise };
        Ok(Stmt::For(Arc::new(node)))
    }

    /// Parses what is assigned to: names, also in tuples, and with `attributes` those of namespaces.
    fn target(&mut self, tuples: bool, attributes: bool, ends: &[&str]) -> Result<Target> {
        let first = self.single_target(attributes)?;
        if !tuples || !self.is_operator(",") {
            return Ok(first);
        }
        let mut targets = vec![first];
        while self.skip_operator(",") {
            let ended = matches!(self.peek(), Token::BlockEnd | Token::VariableEnd)
                || self.is_operator(")")
                || self.is_operator("=")
                || ends.iter().any(|end| self.is_name(end));
            if ended {
                break;
            }
            targets.push(self.single_target(attributes)?);
        }
        Ok(Target::Tuple(targets))
    }

    fn single_target(&mut self, attributes: bool) -> Result<Target> {
        if self.skip_operator("(") {
            let inner = self.nested(|parser| parser.target(true, attributes, &[]))?;
            self.expect_operator(")")?;
            return Ok(inner);
        }
        let name = self.expect_name()?;
        if ["true", "false", "none", "True", "False", "None"].contains(&name.as_str()) {
            return Err(self.fail(format!("can't assign to '{name}'")));
        }
        if attributes && self.skip_operator(".") {
            let attribute = self.expect_name()?;
            return Ok(Target::Attribute(name.into(), attribute));
        }
        Ok(Target::Name(name.into()))
    }

    fn parse_set(&mut self) -> Result<Stmt> {
        let target = self.target(true, true, &[])?;
        if self.skip_operator("=") {
            return Ok(Stmt::Set(target, self.tuple(true, &[])?));
        }
        let filters = match self.is_operator("|") {
            true => Some(self.filters(Expr::BlockText, false)?),
            false => None,
        };
        Ok(Stmt::SetBlock(target, filters, self.inner_to("endset")?))
    }

    fn parse_with(&mut self) -> Result<Stmt> {
        let mut values = Vec::new();
        while *self.peek() != Token::BlockEnd {
            if !values.is_empty() {
                self.expect_operator(",")?;
            }
            let target = self.target(false, false, &[])?;
            self.expect_operator("=")?;
            values.push((target, self.expression()?));
        }
        Ok(Stmt::With(values, self.inner_to("endwith")?))
    }

    fn parse_block(&mut self) -> Result<Stmt> {
        let name = self.expect_name()?;
        self.skip_name("scoped");
        if self.is_name("required") {
            return Err(refused("a required block"));
        }
        let body = self.function_to("endblock")?;
        self.skip_name(&name);
        Ok(Stmt::Block(body))
    }

    fn parse_macro(&mut self) -> Result<Stmt> {
        let name = self.expect_name()?;
        let (parameters, defaults) = self.signature()?;
        let node = self.function(Some(name.into()), parameters, defaults, "endmacro")?;
        Ok(Stmt::Macro(Arc::new(node)))
    }

    fn parse_call(&mut self) -> Result<Stmt> {
        let (parameters, defaults) = match self.is_operator("(") {
            true => self.signature()?,
            false => (Vec::new(), Vec::new()),
        };
        let call = self.expression()?;
        if !matches!(call, Expr::Call(..)) {
            return Err(self.fail("expected call"));
        }
        let node = self.function(None, parameters, defaults, "endcall")?;
        Ok(Stmt::Call(call, Arc::new(node)))
    }

    fn signature(&mut self) -> Result<(Vec<Arc<str>>, Vec<Expr>)> {
        let (mut parameters, mut defaults): (Vec<Arc<str>>, _) = (Vec::new(), Vec::new());
        self.expect_operator("(")?;
        while !self.is_operator(")") {
            if !parameters.is_empty() {
                self.expect_operator(",")?;
            }
            let name: Arc<str> = self.expect_name()?.into();
            if parameters.contains(&name) {
                return Err(self.fail(format!("duplicate argument '{name}'")));
            }
            parameters.push(name);
            if self.skip_operator("=") {
                defaults.push(self.expression()?);
            } else if !defaults.is_empty() {
                return Err(self.fail("non-default argument follows default argument"));
            }
        }
        self.expect_operator(")")?;
        Ok((parameters, defaults))
    }

    fn function(
        &mut self,
        name: Option<Arc<str>>,
        parameters: Vec<Arc<str>>,
        defaults: Vec<Expr>,
        end: &str,
    ) -> Result<Macro> {
        let before = self.uses;
        let body = self.function_to(end)?;
        let has = |name: &str| parameters.iter().position(|parameter| &**parameter == name);
        let uses_caller = self.uses.caller > before.caller;
        if let (true, Some(place)) = (uses_caller, has("caller")) {
            if place + defaults.len() < parameters.len() {
                return Err(self.fail("the special \"caller\" argument must have a default"));
            }
        }
        Ok(Macro {
            uses_caller: uses_caller && has("caller").is_none(),
            explicit_caller: has("caller").is_some(),
            catches_kwargs: self.uses.kwargs > before.kwargs && has("kwargs").is_none(),
            catches_varargs: self.uses.varargs > before.varargs && has("varargs").is_none(),
            name,
            parameters,
            defaults,
            body,
        })
    }
}
