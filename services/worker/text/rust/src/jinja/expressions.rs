// SPDX-License-Identifier: Apache-2.0
//! Jinja2's parser: expressions.

use std::sync::Arc;

use super::ast::{Args, Constant, Expr};
use super::filters;
use super::lexer::Token;
use super::parser::Parser;
use super::tests;
use crate::python::error::{refused, Result};
use crate::python::operators::{Binary, Compare};
use crate::python::text::Str;

impl Parser {
    pub fn expression(&mut self) -> Result<Expr> {
        self.nested(Self::condition)
    }

    /// An expression, or several with commas between them. `conditions`: `x if y` is allowed.
    pub fn tuple(&mut self, conditions: bool, ends: &[&str]) -> Result<Expr> {
        self.tuple_in(conditions, ends, false)
    }

    fn tuple_in(&mut self, conditions: bool, ends: &[&str], parentheses: bool) -> Result<Expr> {
        let mut items = Vec::new();
        let mut is_tuple = false;
        loop {
            if is_tuple {
                self.expect_operator(",")?;
            }
            let ended = matches!(self.peek(), Token::VariableEnd | Token::BlockEnd)
                || self.is_operator(")")
                || ends.iter().any(|end| self.is_name(end));
            if ended {
                break;
            }
            items.push(match conditions {
                true => self.expression()?,
                false => self.nested(Self::or)?,
            });
            if !self.is_operator(",") {
                break;
            }
            is_tuple = true;
        }
        if !is_tuple {
            match items.pop() {
                Some(only) => return Ok(only),
                None if !parentheses => return Err(self.unexpected()),
                None => {}
            }
        }
        Ok(Expr::Tuple(items))
    }

    fn condition(&mut self) -> Result<Expr> {
        let unknown = self.unknown.len();
        let mut value = self.or()?;
        while self.skip_name("if") {
            self.count_operator()?;
            self.soft += 1;
            let test = self.or()?;
            let otherwise = match self.skip_name("else") {
                true => Some(Box::new(self.expression()?)),
                false => None,
            };
            self.soft -= 1;
            if self.soft == 0 {
                self.unknown.truncate(unknown);
            }
            value = Expr::Condition(Box::new((test, value)), otherwise);
        }
        Ok(value)
    }

    fn or(&mut self) -> Result<Expr> {
        let mut left = self.and()?;
        while self.skip_name("or") {
            self.count_operator()?;
            left = Expr::Or(Box::new((left, self.and()?)));
        }
        Ok(left)
    }

    fn and(&mut self) -> Result<Expr> {
        let mut left = self.not()?;
        while self.skip_name("and") {
            self.count_operator()?;
            left = Expr::And(Box::new((left, self.not()?)));
        }
        Ok(left)
    }

    fn not(&mut self) -> Result<Expr> {
        if self.skip_name("not") {
            return Ok(Expr::Not(Box::new(self.nested(Self::not)?)));
        }
        self.comparison()
    }

    fn comparison(&mut self) -> Result<Expr> {
        let first = self.sum()?;
        let mut rest = Vec::new();
        loop {
            let operator = match self.peek() {
                Token::Operator("==") => Compare::Eq,
                Token::Operator("!=") => Compare::Ne,
                Token::Operator("<") => Compare::Lt,
                Token::Operator("<=") => Compare::Le,
                Token::Operator(">") => Compare::Gt,
                Token::Operator(">=") => Compare::Ge,
                Token::Name(name) if name == "in" => Compare::In,
                Token::Name(name) if name == "not" => match self.look() {
                    Token::Name(next) if next == "in" => {
                        self.next();
                        Compare::NotIn
                    }
                    _ => break,
                },
                _ => break,
            };
            self.next();
            rest.push((operator, self.sum()?));
        }
        if rest.is_empty() {
            return Ok(first);
        }
        Ok(Expr::Compare(Box::new(first), rest))
    }

    fn sum(&mut self) -> Result<Expr> {
        let mut left = self.concatenation()?;
        loop {
            let operator = match self.peek() {
                Token::Operator("+") => Binary::Add,
                Token::Operator("-") => Binary::Sub,
                _ => return Ok(left),
            };
            self.next();
            self.count_operator()?;
            left = Expr::Binary(operator, Box::new((left, self.concatenation()?)));
        }
    }

    fn concatenation(&mut self) -> Result<Expr> {
        let first = self.product()?;
        if !self.is_operator("~") {
            return Ok(first);
        }
        let mut parts = vec![first];
        while self.skip_operator("~") {
            parts.push(self.product()?);
        }
        Ok(Expr::Concat(parts))
    }

    fn product(&mut self) -> Result<Expr> {
        let mut left = self.power()?;
        loop {
            let operator = match self.peek() {
                Token::Operator("*") => Binary::Mul,
                Token::Operator("/") => Binary::Div,
                Token::Operator("//") => Binary::FloorDiv,
                Token::Operator("%") => Binary::Mod,
                _ => return Ok(left),
            };
            self.next();
            self.count_operator()?;
            left = Expr::Binary(operator, Box::new((left, self.power()?)));
        }
    }

    fn power(&mut self) -> Result<Expr> {
        let mut left = self.unary(true)?;
        while self.skip_operator("**") {
            self.count_operator()?;
            left = Expr::Binary(Binary::Pow, Box::new((left, self.unary(true)?)));
        }
        Ok(left)
    }

    fn unary(&mut self, with_filters: bool) -> Result<Expr> {
        let value = if self.skip_operator("-") {
            Expr::Negative(Box::new(self.nested(|parser| parser.unary(false))?))
        } else if self.skip_operator("+") {
            Expr::Positive(Box::new(self.nested(|parser| parser.unary(false))?))
        } else {
            self.primary()?
        };
        let value = self.postfix(value)?;
        if with_filters {
            return self.filters_and_tests(value);
        }
        Ok(value)
    }

    fn primary(&mut self) -> Result<Expr> {
        let constant = |constant| Ok(Expr::Constant(constant));
        match self.peek() {
            Token::Name(_) => {
                let name = self.expect_name()?;
                match name.as_str() {
                    "true" | "True" => return constant(Constant::Bool(true)),
                    "false" | "False" => return constant(Constant::Bool(false)),
                    "none" | "None" => return constant(Constant::None),
                    "loop" => self.uses.looping += 1,
                    "caller" => self.uses.caller += 1,
                    "kwargs" => self.uses.kwargs += 1,
                    "varargs" => self.uses.varargs += 1,
                    _ => {}
                }
                let name: Arc<str> = name.into();
                self.names.insert(name.clone());
                Ok(Expr::Name(name))
            }
            Token::Str(_) => {
                let mut text = String::new();
                while let Token::Str(part) = self.peek() {
                    text.push_str(part);
                    self.next();
                }
                constant(Constant::Str(Str::template(text)))
            }
            Token::Int(n) => {
                let n = *n;
                self.next();
                constant(Constant::Int(n))
            }
            Token::Float(x) => {
                let x = *x;
                self.next();
                constant(Constant::Float(x))
            }
            Token::Operator("(") => {
                self.next();
                let inner = self.tuple_in(true, &[], true)?;
                self.expect_operator(")")?;
                Ok(inner)
            }
            Token::Operator("[") => {
                self.next();
                let mut items = Vec::new();
                while !self.is_operator("]") {
                    if !items.is_empty() {
                        self.expect_operator(",")?;
                        if self.is_operator("]") {
                            break;
                        }
                    }
                    items.push(self.expression()?);
                }
                self.expect_operator("]")?;
                Ok(Expr::List(items))
            }
            Token::Operator("{") => {
                self.next();
                let mut entries = Vec::new();
                while !self.is_operator("}") {
                    if !entries.is_empty() {
                        self.expect_operator(",")?;
                        if self.is_operator("}") {
                            break;
                        }
                    }
                    let key = self.expression()?;
                    self.expect_operator(":")?;
                    entries.push((key, self.expression()?));
                }
                self.expect_operator("}")?;
                Ok(Expr::Dict(entries))
            }
            _ => Err(self.unexpected()),
        }
    }

    fn postfix(&mut self, mut value: Expr) -> Result<Expr> {
        loop {
            value = match self.peek() {
                Token::Operator(".") => {
                    self.next();
                    match self.next() {
                        Token::Name(name) => Expr::Attribute(Box::new(value), name),
                        Token::Int(n) => {
                            let index = Expr::Constant(Constant::Int(n));
                            Expr::Item(Box::new((value, index)))
                        }
                        _ => return Err(self.fail("expected name or number")),
                    }
                }
                Token::Operator("[") => {
                    self.next();
                    self.subscript(value)?
                }
                Token::Operator("(") => Expr::Call(Box::new(value), Box::new(self.arguments()?)),
                _ => return Ok(value),
            };
            self.count_operator()?;
        }
    }

    fn subscript(&mut self, value: Expr) -> Result<Expr> {
        let mut keys = Vec::new();
        let mut commas = 0;
        while !self.is_operator("]") {
            if !keys.is_empty() {
                self.expect_operator(",")?;
                commas += 1;
            }
            if self.is_operator(":") {
                return self.slice(value, None, commas);
            }
            let key = self.expression()?;
            if self.is_operator(":") {
                return self.slice(value, Some(key), commas);
            }
            keys.push(key);
        }
        self.expect_operator("]")?;
        let key = match (keys.len(), keys.pop()) {
            (1, Some(key)) => key,
            (_, Some(last)) => {
                keys.push(last);
                Expr::Tuple(keys)
            }
            _ => Expr::Tuple(Vec::new()),
        };
        Ok(Expr::Item(Box::new((value, key))))
    }

    /// The rest of a slice from the first colon on.
    fn slice(&mut self, value: Expr, start: Option<Expr>, commas: usize) -> Result<Expr> {
        let mut bounds = [start, None, None];
        for bound in &mut bounds[1..] {
            if !self.skip_operator(":") {
                break;
            }
            if !self.is_operator(":") && !self.is_operator("]") && !self.is_operator(",") {
                *bound = Some(self.expression()?);
            }
        }
        if commas > 0 || self.is_operator(",") {
            return Err(refused("a slice in a tuple"));
        }
        self.expect_operator("]")?;
        Ok(Expr::Slice(Box::new(value), Box::new(bounds)))
    }

    fn arguments(&mut self) -> Result<Args> {
        self.expect_operator("(")?;
        let mut args = Args::default();
        let mut first = true;
        while !self.is_operator(")") {
            if !first {
                self.expect_operator(",")?;
                if self.is_operator(")") {
                    break;
                }
            }
            first = false;
            let named = match (self.peek(), self.look()) {
                (Token::Name(name), Token::Operator("=")) => Some(name.clone()),
                _ => None,
            };
            let plain = args.star.is_none() && args.double_star.is_none();
            if self.skip_operator("*") {
                if !plain {
                    return Err(self.fail("invalid syntax for function call expression"));
                }
                args.star = Some(self.expression()?);
            } else if self.skip_operator("**") {
                if args.double_star.is_some() {
                    return Err(self.fail("invalid syntax for function call expression"));
                }
                args.double_star = Some(self.expression()?);
            } else if let Some(name) = named {
                if args.double_star.is_some() {
                    return Err(self.fail("invalid syntax for function call expression"));
                }
                self.next();
                self.next();
                let name = Str::template(name);
                if args.named.iter().any(|(given, _)| given.as_str() == name.as_str()) {
                    let name = name.as_str();
                    return Err(self.fail(format!("keyword argument repeated: {name}")));
                }
                args.named.push((name, self.expression()?));
            } else {
                if !plain || !args.named.is_empty() {
                    return Err(self.fail("invalid syntax for function call expression"));
                }
                args.positional.push(self.expression()?);
            }
        }
        self.expect_operator(")")?;
        Ok(args)
    }

    fn dotted_name(&mut self) -> Result<String> {
        let mut name = self.expect_name()?;
        while self.skip_operator(".") {
            name.push('.');
            name.push_str(&self.expect_name()?);
        }
        Ok(name)
    }

    fn filters_and_tests(&mut self, mut value: Expr) -> Result<Expr> {
        loop {
            value = match self.peek() {
                Token::Operator("|") => self.filters(value, false)?,
                Token::Name(name) if name == "is" => self.test(value)?,
                Token::Operator("(") => Expr::Call(Box::new(value), Box::new(self.arguments()?)),
                _ => return Ok(value),
            };
            self.count_operator()?;
        }
    }

    /// `value` through filters; with `inline` the first one has no `|` in front.
    pub fn filters(&mut self, mut value: Expr, mut inline: bool) -> Result<Expr> {
        while inline || self.skip_operator("|") {
            inline = false;
            self.count_operator()?;
            let name = self.dotted_name()?;
            if self.soft == 0 && !filters::exists(&name) {
                let message = format!("line {}: No filter named '{name}'.", self.line());
                self.unknown.push(message);
            }
            let args = match self.is_operator("(") {
                true => self.arguments()?,
                false => Args::default(),
            };
            value = Expr::Filter(Box::new(value), name, Box::new(args));
        }
        Ok(value)
    }

    fn test(&mut self, value: Expr) -> Result<Expr> {
        self.next();
        let negated = self.skip_name("not");
        let name = self.dotted_name()?;
        if self.soft == 0 && !tests::exists(&name) {
            let message = format!("line {}: No test named '{name}'.", self.line());
            self.unknown.push(message);
        }
        let mut args = Args::default();
        let has_argument = match self.peek() {
            Token::Operator("(") => {
                args = self.arguments()?;
                false
            }
            Token::Name(name) => !["else", "or", "and"].contains(&name.as_str()),
            Token::Str(_) | Token::Int(_) | Token::Float(_) => true,
            Token::Operator("[" | "{") => true,
            _ => false,
        };
        if has_argument {
            if self.is_name("is") {
                return Err(self.fail("You cannot chain multiple tests with is"));
            }
            let argument = self.nested(Self::primary)?;
            args.positional.push(self.postfix(argument)?);
        }
        let test = Expr::Test(Box::new(value), name, Box::new(args));
        Ok(if negated { Expr::Not(Box::new(test)) } else { test })
    }
}
