// SPDX-License-Identifier: Apache-2.0
//! A template can change namespaces, so it can make one hold itself. minijinja counts references, so
//! nothing would free such a cycle. The namespaces of a rendering are therefore emptied after it.

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

/// Empties the namespaces of one template. A cycle has at least one attribute that was set after its
/// namespace was made, and the name of such an attribute stands in the template.
pub struct Namespaces {
    /// A template that resets the attributes, since there is no other way to change them.
    clearing: Environment<'static>,
}

impl Namespaces {
    /// Makes `environment`, in which `source` is the template, remember the namespaces it creates. It
    /// refuses so many that emptying them would take more than `max_steps`.
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

    /// Empties the namespaces made on this thread.
    pub fn clear(&self) -> Result<(), Error> {
        let made = MADE.take();
        if made.is_empty() {
            return Ok(());
        }
        let all = Value::from_iter([("all", Value::from(made))]);
        self.clearing.get_template(NAME)?.render(all).map(drop)
    }
}

/// The names that follow a dot; those of set attributes are among them.
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
