// SPDX-License-Identifier: Apache-2.0
//! Chat templates as transformers renders them.

use std::fmt::Write as _;
use std::io;

use chrono::DateTime;
use minijinja::value::Value;
use minijinja::{Environment, ErrorKind};
use serde::Deserialize;
use serde_json::Map;

use crate::bounds::{self, MAX_TEXT_BYTES};
use crate::digest::Digest;
use crate::error::{Code, Error, Result};
use crate::files::Config;
use crate::json::tojson;
use crate::namespaces::Namespaces;
use crate::python;
use crate::rewrite::rewrite;

/// Most instructions of one rendering, about half a second. Fuzzers get fewer.
const MAX_STEPS: u64 = if cfg!(fuzzing) { 20_000 } else { 5_000_000 };
/// Bytes of the stack. The allowed steps can nest so many values that dropping them needs most of it.
/// Only the used part costs memory.
const STACK_BYTES: usize = 256 << 20;
/// Most macros inside macros, and blocks inside blocks.
const MAX_RECURSION: usize = 100;
/// Names that transformers sets, which arguments may not.
const RESERVED: [&str; 5] =
    ["messages", "tools", "add_generation_prompt", "strftime_now", "raise_exception"];

pub struct ChatTemplate {
    /// None: the model has no template.
    compiled: Option<Compiled>,
    special_tokens: Map<String, serde_json::Value>,
    pub digest: String,
}

struct Compiled {
    environment: Environment<'static>,
    namespaces: Namespaces,
}

#[derive(Deserialize)]
pub struct ChatRequest {
    messages: Vec<Value>,
    #[serde(default)]
    tools: Value,
    #[serde(default)]
    documents: Value,
    add_generation_prompt: bool,
    #[serde(default)]
    continue_final_message: bool,
    #[serde(default)]
    template_arguments: String,
    #[serde(default)]
    now_seconds: i64,
}

impl ChatRequest {
    pub fn parse(json: &str) -> Result<ChatRequest> {
        serde_json::from_str(json).map_err(|e| Error::invalid(format!("the conversation: {e}")))
    }
}

impl ChatTemplate {
    pub fn new(config: Config) -> Result<ChatTemplate> {
        let mut digest = Digest::new("continuo chat template");
        digest.object(&config.special_tokens);
        digest.value(&config.template.as_deref().into());
        let compiled = config.template.map(compile).transpose()?;
        Ok(ChatTemplate { compiled, special_tokens: config.special_tokens, digest: digest.hex() })
    }

    pub fn exists(&self) -> bool {
        self.compiled.is_some()
    }

    /// Renders on a thread whose stack is large enough for anything that a template can do.
    pub fn render(&self, request: ChatRequest) -> Result<String> {
        std::thread::scope(|scope| {
            std::thread::Builder::new()
                .stack_size(STACK_BYTES)
                .spawn_scoped(scope, || self.render_here(request))
                .map_err(|e| Error::new(Code::ResourceExhausted, format!("no thread: {e}")))?
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    fn render_here(&self, request: ChatRequest) -> Result<String> {
        let Some(Compiled { environment, namespaces }) = &self.compiled else {
            let message = "the model has no chat template";
            return Err(Error::new(Code::FailedPrecondition, message));
        };
        let now = DateTime::from_timestamp(request.now_seconds, 0)
            .ok_or_else(|| Error::invalid("the time is out of range"))?;
        let strftime_now = Value::from_function(move |format: &str| {
            let mut text = String::new();
            write!(text, "{}", now.format(format)).map(|()| text).map_err(|_| {
                minijinja::Error::new(ErrorKind::InvalidOperation, "strftime_now: bad format")
            })
        });

        let mut context: Vec<(String, Value)> = Vec::new();
        for (name, token) in &self.special_tokens {
            context.push((name.clone(), Value::from_serialize(token)));
        }
        context.push(("documents".to_owned(), none_if_undefined(request.documents)));
        context.extend(arguments(&request.template_arguments)?);
        let final_message = request.messages.last().cloned();
        context.push(("messages".to_owned(), Value::from(request.messages)));
        context.push(("tools".to_owned(), none_if_undefined(request.tools)));
        let generation_prompt = request.add_generation_prompt && !request.continue_final_message;
        context.push(("add_generation_prompt".to_owned(), generation_prompt.into()));
        context.push(("strftime_now".to_owned(), strftime_now));

        let mut out = Bounded(Vec::new());
        let result = environment
            .get_template(NAME)
            .and_then(|t| t.render_captured_to(Value::from_iter(context), &mut out).map(drop));
        namespaces.clear().map_err(|e| Error::new(Code::Internal, format!("namespaces: {e}")))?;
        result.map_err(refusal)?;
        let rendered = String::from_utf8(out.0)
            .map_err(|_| Error::new(Code::Internal, "the chat template's output is not UTF-8"))?;
        if request.continue_final_message {
            return cut_after_final_message(rendered, final_message);
        }
        Ok(rendered)
    }
}

const NAME: &str = "chat template";

fn compile(source: String) -> Result<Compiled> {
    let mut environment = Environment::new();
    environment.set_trim_blocks(true);
    environment.set_lstrip_blocks(true);
    environment.set_fuel(Some(MAX_STEPS));
    environment.set_recursion_limit(MAX_RECURSION);
    python::add_to(&mut environment);
    bounds::add_to(&mut environment);
    environment.add_filter("tojson", tojson);
    environment.add_function(
        "raise_exception",
        |message: String| -> std::result::Result<Value, _> {
            Err(minijinja::Error::new(ErrorKind::InvalidOperation, message))
        },
    );
    let bad = |e| Error::invalid(format!("chat template: {e}"));
    let source = rewrite(&source);
    let namespaces = Namespaces::new(&mut environment, &source, MAX_STEPS).map_err(bad)?;
    environment.add_template_owned(NAME, source).map_err(bad)?;
    Ok(Compiled { environment, namespaces })
}

fn arguments(json: &str) -> Result<Vec<(String, Value)>> {
    if json.is_empty() {
        return Ok(Vec::new());
    }
    let object: Map<String, serde_json::Value> = serde_json::from_str(json)
        .map_err(|e| Error::invalid(format!("template_arguments is not a JSON object: {e}")))?;
    for name in RESERVED {
        if object.contains_key(name) {
            return Err(Error::invalid(format!("template_arguments may not set \"{name}\"")));
        }
    }
    Ok(object.iter().map(|(name, value)| (name.clone(), Value::from_serialize(value))).collect())
}

fn none_if_undefined(value: Value) -> Value {
    if value.is_undefined() {
        return Value::from(());
    }
    value
}

fn refusal(error: minijinja::Error) -> Error {
    if error.kind() == ErrorKind::OutOfFuel {
        return Error::invalid(format!("the chat template takes more than {MAX_STEPS} steps"));
    }
    if error.kind() == ErrorKind::WriteFailure {
        return Error::invalid(format!(
            "the conversation has more than {MAX_TEXT_BYTES} bytes with its chat template"
        ));
    }
    let mut message = format!("the chat template refuses the conversation: {error}");
    let mut cause = std::error::Error::source(&error);
    while let Some(inner) = cause {
        let _ = write!(message, ": {inner}");
        cause = inner.source();
    }
    Error::invalid(message)
}

/// A writer that ends the rendering at its limit.
struct Bounded(Vec<u8>);

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > MAX_TEXT_BYTES {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Cuts the rendering at the end of the final message's content, so that the answer continues there.
/// White space around the content counts only as far as the template kept it.
fn cut_after_final_message(mut rendered: String, message: Option<Value>) -> Result<String> {
    let content = message
        .and_then(|message| message.get_attr("content").ok())
        .and_then(|content| text_of(&content))
        .ok_or_else(|| Error::invalid("the final message to continue has no text"))?;
    let trimmed = content.trim();
    let start = rendered.rfind(trimmed).ok_or_else(|| {
        Error::invalid("the final message to continue is not in what the chat template renders")
    })?;
    let with_end = content.trim_start();
    let kept = if rendered[start..].starts_with(with_end) { with_end } else { trimmed };
    rendered.truncate(start + kept.len());
    Ok(rendered)
}

/// A content is a string, or parts of which the last one with a text counts.
fn text_of(content: &Value) -> Option<String> {
    if let Some(text) = content.as_str() {
        return Some(text.to_owned());
    }
    let parts: Vec<Value> = content.try_iter().ok()?.collect();
    let texts = parts.iter().rev().filter_map(|part| part.get_attr("text").ok());
    texts.filter_map(|text| text.as_str().map(str::to_owned)).next()
}
