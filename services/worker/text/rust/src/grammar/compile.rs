// SPDX-License-Identifier: Apache-2.0
//! Grammars from the forms in which requests have them.

use std::fmt::Display;
use std::sync::Mutex;

use llguidance::api::TopLevelGrammar;
use llguidance::{regex_to_lark, TokenParser};
use serde_json::{json, Value};

use crate::error::{Error, Result};

use super::environment::Environment;
use super::matcher::Matcher;

const MAX_SOURCE_BYTES: usize = 256 << 10;
const MAX_CHOICES: usize = 10_000;
/// Compilers recurse over what they compile. Only the pages that are touched exist.
const STACK_BYTES: usize = 256 << 20;

#[derive(Clone, Copy, PartialEq)]
pub enum Kind {
    JsonSchema,
    JsonObject,
    Regex,
    Choice,
    Lark,
}

impl Kind {
    pub fn of(number: i32) -> Result<Kind> {
        match number {
            0 => Ok(Kind::JsonSchema),
            1 => Ok(Kind::JsonObject),
            2 => Ok(Kind::Regex),
            3 => Ok(Kind::Choice),
            4 => Ok(Kind::Lark),
            _ => Err(Error::invalid(format!("there is no kind of grammar {number}"))),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Kind::JsonSchema => "the schema",
            Kind::JsonObject => "the JSON object",
            Kind::Regex => "the regular expression",
            Kind::Choice => "the choice",
            Kind::Lark => "the grammar",
        }
    }
}

/// A compiled grammar before its first token.
pub struct Grammar {
    parser: Mutex<TokenParser>,
    num_tokens: usize,
}

impl Grammar {
    pub fn compile(environment: &Environment, kind: Kind, source: &str) -> Result<Grammar> {
        if source.len() > MAX_SOURCE_BYTES {
            return Err(Error::invalid(format!(
                "{} has {} bytes, at most {MAX_SOURCE_BYTES} are allowed",
                kind.name(),
                source.len()
            )));
        }
        std::thread::scope(|scope| {
            std::thread::Builder::new()
                .stack_size(STACK_BYTES)
                .spawn_scoped(scope, || compile(environment, kind, source))
                .map_err(|e| Error::invalid(format!("no thread for a compiler: {e}")))?
                .join()
                .unwrap_or_else(|_| {
                    Err(Error::invalid(format!("{} is beyond the compiler's limits", kind.name())))
                })
        })
    }

    pub fn matcher(&self) -> Result<Matcher> {
        match self.parser.lock() {
            // The caches of the lexer are copied, too: sequences share nothing.
            Ok(parser) => Matcher::new(parser.deep_clone(), self.num_tokens),
            Err(_) => Err(Error::invalid("the grammar cannot be used any more")),
        }
    }
}

fn compile(environment: &Environment, kind: Kind, source: &str) -> Result<Grammar> {
    let grammar = match kind {
        Kind::JsonSchema => json_grammar(parse_schema(source)?),
        Kind::JsonObject => json_grammar(json!({"type": "object"})),
        Kind::Regex => regex_grammar(source),
        Kind::Choice => TopLevelGrammar::from_lark(choice_grammar(source)?),
        Kind::Lark => TopLevelGrammar::from_lark(source.to_owned()),
    };
    let mut parser = environment.factory.create_parser(grammar).map_err(|e| refused(kind, e))?;
    parser.start_without_prompt();
    // Some attributes of Lark rules cannot be taken back, drafts need that.
    parser.parser.rollback(0).map_err(|e| refused(kind, e))?;
    Ok(Grammar { parser: Mutex::new(parser), num_tokens: environment.num_tokens })
}

fn refused(kind: Kind, error: impl Display) -> Error {
    const MAX_MESSAGE: usize = 500;
    let mut message = error.to_string();
    if let Some(end) = message.find("\n<") {
        message.truncate(end);
    }
    if message.len() > MAX_MESSAGE {
        let end = (0..=MAX_MESSAGE).rev().find(|&i| message.is_char_boundary(i)).unwrap_or(0);
        message.truncate(end);
    }
    Error::invalid(format!("{}: {}", kind.name(), message.trim()))
}

fn parse_schema(source: &str) -> Result<Value> {
    let schema: Value = serde_json::from_str(source)
        .map_err(|e| Error::invalid(format!("the schema: not JSON: {e}")))?;
    match schema.is_object() {
        true => Ok(schema),
        false => Err(Error::invalid("the schema: not a JSON object")),
    }
}

/// White space is what models write: one or two spaces, a tab, or an end of line with an
/// indentation. It is bounded, so it cannot go on forever. Characters are escaped only where they
/// must be: two spellings of one key would be two keys for the grammar and one for its reader.
fn json_grammar(mut schema: Value) -> TopLevelGrammar {
    schema["x-guidance"] = json!({
        "whitespace_pattern": r" {1,2}|\t|\r?\n[ \t]{0,40}",
        "json_allowed_escapes": r#"nrbtf"\"#,
    });
    TopLevelGrammar::from_json_schema(schema)
}

fn regex_grammar(source: &str) -> TopLevelGrammar {
    TopLevelGrammar::from_lark(format!("start: /{}/", regex_to_lark(source, "")))
}

fn choice_grammar(source: &str) -> Result<String> {
    let options: Vec<String> = serde_json::from_str(source)
        .map_err(|e| Error::invalid(format!("the choice: not a list of strings: {e}")))?;
    if options.is_empty() || options.len() > MAX_CHOICES {
        return Err(Error::invalid(format!(
            "the choice has {} options, 1 to {MAX_CHOICES} are allowed",
            options.len()
        )));
    }
    let literals: Vec<String> =
        options.iter().map(|option| Value::from(option.as_str()).to_string()).collect();
    Ok(format!("start: {}", literals.join(" | ")))
}
