// SPDX-License-Identifier: Apache-2.0
//! Grammars from the forms in which requests have them.

use std::fmt::Display;
use std::sync::Mutex;

use llguidance::api::{GrammarInit, StopReason, TopLevelGrammar};
use llguidance::toktrie::InferenceCapabilities;
use llguidance::{regex_to_lark, Logger, TokenParser};
use serde_json::{json, Value};

use crate::error::{Code, Error, Result};

use super::environment::{limits, Environment, Writer};
use super::lark;
use super::pattern::{rewrite, Dialect};
use super::schema::CheckedSchema;
use super::step;

const MAX_SOURCE_BYTES: usize = 256 << 10;
const MAX_CHOICES: usize = 10_000;
/// Compilers recurse over what they compile. Only the pages that are touched exist.
const STACK_BYTES: usize = if cfg!(fuzzing) { 16 << 20 } else { 256 << 20 };

#[derive(Clone, Copy, PartialEq)]
pub enum Kind {
    JsonSchema,
    JsonObject,
    Regex,
    Choice,
    Lark,
    /// Lark that the worker made.
    OwnLark,
}

impl Kind {
    pub fn of(number: i32) -> Result<Kind> {
        match number {
            0 => Ok(Kind::JsonSchema),
            1 => Ok(Kind::JsonObject),
            2 => Ok(Kind::Regex),
            3 => Ok(Kind::Choice),
            4 => Ok(Kind::Lark),
            5 => Ok(Kind::OwnLark),
            _ => Err(Error::invalid(format!("there is no kind of grammar {number}"))),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Kind::JsonSchema => "the schema",
            Kind::JsonObject => "the JSON object",
            Kind::Regex => "the regular expression",
            Kind::Choice => "the choice",
            Kind::Lark | Kind::OwnLark => "the grammar",
        }
    }
}

/// A compiled grammar before its first token.
pub struct Grammar {
    parser: Mutex<TokenParser>,
    num_tokens: usize,
}

/// The name that Lark around a source has for it.
const INNER: &str = "text";

impl Grammar {
    /// Compiles a source. Lark of the worker's may stand around it, and has it as `@text`.
    pub fn compile(
        environment: &Environment,
        kind: Kind,
        source: &str,
        around: Option<&str>,
    ) -> Result<Grammar> {
        for text in [Some(source), around].into_iter().flatten() {
            if text.len() > MAX_SOURCE_BYTES {
                return Err(Error::invalid(format!(
                    "{} has {} bytes, at most {MAX_SOURCE_BYTES} are allowed",
                    kind.name(),
                    text.len()
                )));
            }
        }
        let parser = std::thread::scope(|scope| {
            let compiler = std::thread::Builder::new().stack_size(STACK_BYTES);
            match compiler.spawn_scoped(scope, || compile(environment, kind, source, around)) {
                Ok(thread) => thread.join().unwrap_or_else(|_| {
                    Err(refused(kind, "it is beyond the limits of the library that compiles it"))
                }),
                Err(error) => Err(Error::new(
                    Code::ResourceExhausted,
                    format!("there is no thread for a compiler: {error}"),
                )),
            }
        });
        Ok(Grammar { parser: Mutex::new(parser?), num_tokens: environment.num_tokens })
    }

    pub fn num_tokens(&self) -> usize {
        self.num_tokens
    }

    /// A parser at the beginning. The caches of the lexer are copied, too: answers share nothing.
    pub fn parser(&self) -> Result<TokenParser> {
        match self.parser.lock() {
            Ok(parser) => Ok(parser.deep_clone()),
            Err(_) => Err(Error::invalid("the grammar cannot be used any more")),
        }
    }
}

fn compile(
    environment: &Environment,
    kind: Kind,
    source: &str,
    around: Option<&str>,
) -> Result<TokenParser> {
    let mut schema = None;
    let mut grammar = match kind {
        Kind::JsonSchema => {
            let checked =
                CheckedSchema::new(parse_schema(source)?).map_err(|e| refused(kind, e))?;
            TopLevelGrammar::from_json_schema(prepare_schema(schema.insert(checked).schema.clone()))
        }
        Kind::JsonObject => {
            TopLevelGrammar::from_json_schema(prepare_schema(json!({"type": "object"})))
        }
        Kind::Regex => {
            regex_grammar(&rewrite(source, Dialect::Rust).map_err(|e| refused(kind, e))?)
        }
        Kind::Choice => regex_grammar(&choice_regex(source)?),
        Kind::Lark | Kind::OwnLark => {
            let lark = lark::prepare(source, kind == Kind::OwnLark, prepare_schema)
                .map_err(|e| refused(kind, e))?;
            TopLevelGrammar::from_lark(lark)
        }
    };
    let writer = match (kind, around) {
        (Kind::Lark | Kind::Regex, None) => Writer::Client,
        (Kind::Lark | Kind::Regex, Some(_)) => Writer::ClientWithin,
        _ => Writer::Worker,
    };
    if let Some(around) = around {
        grammar = within(around, grammar).map_err(|e| refused(kind, e))?;
    }
    let parser = environment.factory.create_parser_from_init_ext(
        GrammarInit::Serialized(grammar),
        Logger::new(0, 0),
        InferenceCapabilities::default(),
        limits(writer),
    );
    let mut parser = parser.map_err(|e| match &schema {
        Some(schema) => refused(kind, schema.explain(&e.to_string())),
        None => refused(kind, e),
    })?;
    parser.start_without_prompt();
    // Some attributes of Lark rules cannot be taken back, drafts need that.
    parser.parser.rollback(0).map_err(|e| refused(kind, e))?;
    begin(&mut parser).map_err(|e| refused(kind, e))?;
    Ok(parser)
}

/// Makes the first mask, whose findings all answers copy, and looks behind a first bracket, so what
/// is too large is refused here.
fn begin(parser: &mut TokenParser) -> std::result::Result<(), String> {
    if parser.parser.stats().all_items > parser.limits.max_items_in_row {
        return Err("it begins in too many ways".to_owned());
    }
    if let Err(error) = parser.compute_mask() {
        return Err(match parser.stop_reason() {
            StopReason::NoExtensionBias => {
                "no answer obeys it that the model's tokens could write".to_owned()
            }
            _ => error.to_string(),
        });
    }
    let tokens = parser.token_env.clone();
    for bracket in [b"{", b"["] {
        let Some(id) = tokens.tok_trie().token_id(bracket) else { continue };
        let mut copy = parser.deep_clone();
        step::refuel(&mut copy);
        if copy.validate_token(id).is_ok_and(|valid| valid) {
            copy.consume_token(id).map_err(|e| e.to_string())?;
            step::error_of(&copy).map_or(Ok(()), Err)?;
        }
    }
    Ok(())
}

fn refused(kind: Kind, error: impl Display) -> Error {
    const MAX_MESSAGE: usize = 500;
    let mut message = error.to_string();
    if message.contains("Current row has") {
        message = "it allows too many alternatives at one place".to_owned();
    }
    if message.starts_with("panic") {
        message = "it is beyond the limits of the library that compiles it".to_owned();
    }
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
    serde_json::from_str(source).map_err(|e| Error::invalid(format!("the schema: not JSON: {e}")))
}

/// Adds how JSON is written. White space is what models write: one or two spaces, a tab, or an end of
/// line with an indentation. It is bounded, so it cannot go on forever. Characters are escaped only
/// where they must be: two spellings of one name would be two names for the grammar and one for its
/// reader. A schema in Lark may have its own way.
fn prepare_schema(mut schema: Value) -> Value {
    if schema.get("x-guidance").is_some() {
        return schema;
    }
    schema["x-guidance"] = json!({
        "whitespace_pattern": r" {1,2}|\t|\r?\n[ \t]{0,40}",
        "json_allowed_escapes": r#"nrbtf"\"#,
    });
    schema
}

/// The Lark with a grammar in it, which it has as `@text`.
fn within(around: &str, inner: TopLevelGrammar) -> std::result::Result<TopLevelGrammar, String> {
    let mut grammar = TopLevelGrammar::from_lark(lark::prepare(around, true, prepare_schema)?);
    for mut part in inner.grammars {
        part.name = Some(INNER.to_owned());
        grammar.grammars.push(part);
    }
    Ok(grammar)
}

fn regex_grammar(regex: &str) -> TopLevelGrammar {
    TopLevelGrammar::from_lark(format!("start: /(?:{})/", regex_to_lark(regex, "")))
}

fn choice_regex(source: &str) -> Result<String> {
    let options: Vec<String> = serde_json::from_str(source)
        .map_err(|e| Error::invalid(format!("the choice: not a list of strings: {e}")))?;
    if options.is_empty() || options.len() > MAX_CHOICES {
        return Err(Error::invalid(format!(
            "the choice has {} options, 1 to {MAX_CHOICES} are allowed",
            options.len()
        )));
    }
    let options: Vec<String> = options.iter().map(|option| regex_syntax::escape(option)).collect();
    Ok(options.join("|"))
}
