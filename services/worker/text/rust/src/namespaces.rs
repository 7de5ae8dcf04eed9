// SPDX-License-Identifier: Apache-2.0
//! Namespaces are what a template can change, so what it can make hold itself. minijinja counts
//! references; nothing would free such a ring. So the namespaces of a rendering are emptied after it.

use std::cell::RefCell;
use std::collections::BTreeSet;

use minijinja::machinery::{tokenize, Token, WhitespaceConfig};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Value;
use minijinja::{functions, Environment, Error, ErrorKind};

thread_local! {
    static MADE: RefCell<Vec<Value>> = const { RefCell::new(Vec::new()) };
}

const NAME: &str = "clearing";

/// Empties the namespaces of one template. What a ring consists of is not only what namespaces were
/// made with, which was there before them, but at least one attribute that was set later, whose name
/// stands in the template.
pub struct Namespaces {
    /// A template that sets them: there is no other way to them.
    clearing: Environment<'static>,
}

impl Namespaces {
    /// Has `environment`, in which `source` is the template, remember what `namespace` makes. So much
    /// of it is refused that emptying takes `max_steps`.
    pub fn new(
        environment: &mut Environment,
        source: &str,
        max_steps: u64,
    ) -> Result<Namespaces, Error> {
        let names = attributes(source);
        let most = usize::try_from(max_steps).unwrap_or(usize::MAX) / (1 + names.len());
        environment.add_function("namespace", move |defaults: Option<Value>| {
            let made = functions::namespace(defaults)?;
            MADE.with_borrow_mut(|all| {
                if all.len() >= most {
                    let message = format!("more than {most} namespaces");
                    return Err(Error::new(ErrorKind::InvalidOperation, message));
                }
                all.push(made.clone());
                Ok(made)
            })
        });
        let mut text = String::from("{% for made in all %}");
        for name in names {
            text.push_str("{% set made.");
            text.push_str(name);
            text.push_str(" = none %}");
        }
        text.push_str("{% endfor %}");
        let mut clearing = Environment::new();
        clearing.add_template_owned(NAME, text)?;
        Ok(Namespaces { clearing })
    }

    /// Empties what was made on this thread.
    pub fn clear(&self) -> Result<(), Error> {
        let made = MADE.take();
        if made.is_empty() {
            return Ok(());
        }
        let all = Value::from_iter([("all", Value::from(made))]);
        self.clearing.get_template(NAME)?.render(all).map(drop)
    }
}

/// The names that follow a dot, those of attributes that are set among them.
fn attributes(source: &str) -> BTreeSet<&str> {
    let tokens: Vec<Token> =
        tokenize(source, false, SyntaxConfig::default(), WhitespaceConfig::default())
            .map_while(Result::ok)
            .map(|(token, _)| token)
            .collect();
    let names = tokens.windows(2).filter_map(|pair| match pair {
        [Token::Dot, Token::Ident(name)] => Some(*name),
        _ => None,
    });
    names.collect()
}
