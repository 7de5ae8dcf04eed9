// SPDX-License-Identifier: Apache-2.0
//! Chat templates as transformers renders them.

use std::collections::{BTreeSet, HashMap};

use aho_corasick::{AhoCorasick, MatchKind};
use chrono::DateTime;
use serde::Deserialize;
use serde_json::{Map, Value as Json};

use crate::digest::Digest;
use crate::error::{Code, Error, Result};
use crate::files::Config;
use crate::forms::{Form, Forms};
use crate::jinja::Template;
use crate::python::error::{self as python_error, Kind};
use crate::python::text::{Str, MAX_TEXT_BYTES};
use crate::python::value::{Dict, Value};

/// Most steps of one rendering, about half a second. Fuzzers get fewer.
pub const MAX_STEPS: u64 = if cfg!(fuzzing) { 20_000 } else { 5_000_000 };
/// Bytes of the stack of a rendering. Only the used part costs memory.
const STACK_BYTES: usize = 256 << 20;
/// Names that transformers sets, which arguments may not.
const RESERVED: [&str; 5] =
    ["messages", "tools", "add_generation_prompt", "strftime_now", "raise_exception"];

#[derive(Default)]
pub struct ChatTemplate {
    /// None: the model has no template.
    compiled: Option<Compiled>,
    /// The one for conversations with tools, where it is another one.
    with_tools: Option<Compiled>,
    special_tokens: Map<String, Json>,
    /// The tags of thoughts and calls, which in the content of an assistant are no text.
    answer_tags: Option<AhoCorasick>,
    pub digest: String,
    /// The sources of both.
    pub source: String,
    /// The model's `response_template`, as JSON; empty where it has none.
    pub response_template: String,
}

struct Compiled {
    template: Template,
    forms: Forms,
    /// Its own text, and its strings.
    strings: BTreeSet<String>,
}

#[derive(Deserialize)]
pub struct ChatRequest {
    pub messages: Vec<Json>,
    #[serde(default)]
    pub tools: Json,
    #[serde(default)]
    pub documents: Json,
    pub add_generation_prompt: bool,
    #[serde(default)]
    pub continue_final_message: bool,
    #[serde(default)]
    pub template_arguments: String,
    /// Rendered instead of the model's own; empty: the model's.
    #[serde(default)]
    pub chat_template: String,
    #[serde(default)]
    pub now_seconds: i64,
}

impl ChatRequest {
    pub fn parse(json: &str) -> Result<ChatRequest> {
        check_integers(json, "the conversation")?;
        serde_json::from_str(json).map_err(|e| Error::invalid(format!("the conversation: {e}")))
    }

    /// A conversation that shows what a template does, at the beginning of Unix time.
    pub fn trial(messages: Vec<Json>, tools: Json, add_generation_prompt: bool) -> ChatRequest {
        ChatRequest {
            messages,
            tools,
            documents: Json::Null,
            add_generation_prompt,
            continue_final_message: false,
            template_arguments: String::new(),
            chat_template: String::new(),
            now_seconds: 0,
        }
    }
}

impl ChatTemplate {
    pub fn new(config: Config) -> Result<ChatTemplate> {
        let mut digest = Digest::new("continuo chat template");
        digest.object(&config.special_tokens);
        digest.value(&config.template.as_deref().into());
        let response_template = config.config.get("response_template");
        // Models without either keep the digest that they had.
        if config.tool_template.is_some() || response_template.is_some() {
            digest.value(&config.tool_template.as_deref().into());
            digest.value(response_template.unwrap_or(&Json::Null));
        }
        let mut template = ChatTemplate {
            special_tokens: config.special_tokens,
            digest: digest.hex(),
            response_template: response_template.map(Json::to_string).unwrap_or_default(),
            ..ChatTemplate::default()
        };
        if let Some(source) = config.template {
            template.compiled = Some(template.compile(&source)?);
            template.source = source;
        }
        if let Some(source) = config.tool_template {
            template.with_tools = Some(template.compile(&source)?);
            template.source.push_str(&source);
        }
        Ok(template)
    }

    fn compile(&self, source: &str) -> Result<Compiled> {
        with_large_stack(|| {
            let template = compile(source)?;
            let contents = template.contents();
            let render =
                |request: &ChatRequest, steps: u64| self.render_by(&template, request, steps);
            let forms = Forms::find(&contents, &render);
            Ok(Compiled { template, forms, strings: contents.strings })
        })
    }

    /// A template without a model: no special tokens, and contents as they are given.
    pub fn of_text(source: &str) -> Result<ChatTemplate> {
        let template = with_large_stack(|| compile(source))?;
        let compiled = Compiled { template, forms: Forms::default(), strings: BTreeSet::new() };
        Ok(ChatTemplate { compiled: Some(compiled), ..ChatTemplate::default() })
    }

    fn both(&self) -> impl Iterator<Item = &Compiled> {
        self.compiled.iter().chain(&self.with_tools)
    }

    /// Says that these texts are tags of thoughts and calls.
    pub fn set_answer_tags(&mut self, tags: &[String]) {
        // Tags that are too many to be found are text.
        self.answer_tags = match tags {
            [] => None,
            tags => AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(tags).ok(),
        };
    }

    /// True where the template has it in its text or its strings.
    pub fn has_text(&self, text: &str) -> bool {
        self.both().any(|of| of.strings.iter().any(|string| string.contains(text)))
    }

    /// What of conversations the template loses, in sentences.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        for (of, lost) in self.both().flat_map(|of| [(of, true), (of, false)]) {
            let (roles, what) = match lost {
                true => (&of.forms.lost, "shows nothing of the content of messages"),
                false => (&of.forms.refused, "refuses all conversations that were tried"),
            };
            // Many templates have no system and refuse one; no conversation is without a user.
            let tells = if lost { !roles.is_empty() } else { roles.contains(&"user") };
            if tells {
                let roles = roles.join(", ");
                warnings
                    .push(format!("the chat template {what}, as text and as parts, of: {roles}"));
            }
        }
        warnings.dedup();
        warnings
    }

    /// The names that arguments of the template may have: those that it reads and that nothing else sets.
    pub fn argument_names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.both().flat_map(|of| of.template.names()).collect();
        names.retain(|name| !RESERVED.contains(name) && !self.special_tokens.contains_key(*name));
        names.sort_unstable();
        names.dedup();
        names
    }

    pub fn exists(&self) -> bool {
        self.compiled.is_some()
    }

    pub fn render(&self, request: ChatRequest) -> Result<Str> {
        self.render_within(request, MAX_STEPS)
    }

    /// Renders in at most so many steps.
    pub fn render_within(&self, mut request: ChatRequest, steps: u64) -> Result<Str> {
        let source = std::mem::take(&mut request.chat_template);
        if source.is_empty() {
            return self.render_own(request, steps);
        }
        let mut own = ChatTemplate {
            special_tokens: self.special_tokens.clone(),
            answer_tags: self.answer_tags.clone(),
            ..ChatTemplate::default()
        };
        let compiled = own.compile(&source);
        own.compiled = Some(compiled.map_err(|e| Error::invalid(format!("chat_template: {e}")))?);
        own.render_own(request, steps)
    }

    fn render_own(&self, mut request: ChatRequest, steps: u64) -> Result<Str> {
        let for_tools = self.with_tools.as_ref().filter(|_| !request.tools.is_null());
        let Some(compiled) = for_tools.or(self.compiled.as_ref()) else {
            let message = "the model has no chat template";
            return Err(Error::new(Code::FailedPrecondition, message));
        };
        with_large_stack(|| {
            let final_message = request.messages.last().cloned();
            for message in &mut request.messages {
                compiled.forms.apply(message);
            }
            let continues = request.continue_final_message;
            let rendered = self.render_by(&compiled.template, &request, steps)?;
            match continues {
                true => cut_after_final_message(rendered, final_message),
                false => Ok(rendered),
            }
        })
    }

    fn render_by(&self, template: &Template, request: &ChatRequest, steps: u64) -> Result<Str> {
        if DateTime::from_timestamp(request.now_seconds, 0).is_none() {
            return Err(Error::invalid("the time is out of range"));
        }
        python_error::set_steps(MAX_STEPS);
        let variables = self.variables(request)?;
        template.render(variables, request.now_seconds, steps).map_err(refusal)
    }

    fn variables(&self, request: &ChatRequest) -> Result<HashMap<String, Value>> {
        let mut variables = HashMap::new();
        for (name, token) in &self.special_tokens {
            variables.insert(name.clone(), to_value(token, false).map_err(refusal)?);
        }
        let documents = to_value(&request.documents, true).map_err(refusal)?;
        variables.insert("documents".to_owned(), documents);
        for (name, value) in arguments(&request.template_arguments)? {
            let value = to_value(&value, true).map_err(refusal)?;
            variables.insert(name, value);
        }
        let messages = request
            .messages
            .iter()
            .map(|message| self.message_of(message))
            .collect::<python_error::Result<_>>();
        let messages = messages.and_then(Value::list).map_err(refusal)?;
        variables.insert("messages".to_owned(), messages);
        let tools = to_value(&request.tools, true).map_err(refusal)?;
        variables.insert("tools".to_owned(), tools);
        let generation_prompt = request.add_generation_prompt && !request.continue_final_message;
        variables.insert("add_generation_prompt".to_owned(), Value::Bool(generation_prompt));
        Ok(variables)
    }

    /// A message. Its role is a word of the protocol, from which templates make control tokens
    /// (`<|user|>`), and so counts as the template's own where it is a plain word.
    fn message_of(&self, message: &Json) -> python_error::Result<Value> {
        let Json::Object(object) = message else { return to_value(message, true) };
        let is_word =
            |s: &str| s.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
        let tags = match object.get("role") {
            Some(Json::String(role)) if role == "assistant" => self.answer_tags.as_ref(),
            _ => None,
        };
        let value_of = |name: &str, value: &Json| match (name, value, tags) {
            ("role", Json::String(role), _) if is_word(role) => {
                Ok(Value::Str(Str::template(role.as_str())))
            }
            ("content", value, Some(tags)) => answer(value, tags),
            (_, value, _) => to_value(value, true),
        };
        dict_of(object, value_of, true).map(Value::Dict)
    }
}

fn compile(source: &str) -> Result<Template> {
    Template::parse(source).map_err(|e| Error::invalid(format!("chat template: {e}")))
}

/// Runs `work` on a thread whose stack is large enough for anything that a template can do.
fn with_large_stack<T: Send>(work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    std::thread::scope(|scope| {
        std::thread::Builder::new()
            .stack_size(STACK_BYTES)
            .spawn_scoped(scope, work)
            .map_err(|e| Error::new(Code::ResourceExhausted, format!("no thread: {e}")))?
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// A JSON value as Python's. Its strings are the request's, or else the template's own.
fn to_value(json: &Json, from_request: bool) -> python_error::Result<Value> {
    let text = |s: &str| match from_request {
        true => Value::Str(Str::content(s)),
        false => Value::Str(Str::template(s)),
    };
    Ok(match json {
        Json::Null => Value::None,
        Json::Bool(b) => Value::Bool(*b),
        Json::Number(n) => match (n.as_i64(), n.as_u64()) {
            (Some(n), _) => Value::Int(n.into()),
            (_, Some(n)) => Value::Int(n.into()),
            _ => Value::Float(n.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(s) => text(s),
        Json::Array(items) => {
            let items = items.iter().map(|item| to_value(item, from_request));
            Value::list(items.collect::<python_error::Result<_>>()?)?
        }
        Json::Object(object) => {
            Value::Dict(dict_of(object, |_, value| to_value(value, from_request), from_request)?)
        }
    })
}

/// What an assistant says: a string, or parts with a text. The tags of its thoughts and calls are tokens
/// that it wrote, and that it is trained to read.
fn answer(content: &Json, tags: &AhoCorasick) -> python_error::Result<Value> {
    match content {
        Json::String(text) => {
            let tags = tags.find_iter(text).map(|tag| tag.range());
            Ok(Value::Str(Str::answer(text, tags)))
        }
        Json::Array(parts) => {
            let part_of = |part: &Json| match part {
                Json::Object(part) => {
                    let value_of = |name: &str, value: &Json| match name {
                        "text" => answer(value, tags),
                        _ => to_value(value, true),
                    };
                    dict_of(part, value_of, true).map(Value::Dict)
                }
                other => to_value(other, true),
            };
            Value::list(parts.iter().map(part_of).collect::<python_error::Result<_>>()?)
        }
        other => to_value(other, true),
    }
}

fn dict_of(
    object: &Map<String, Json>,
    value_of: impl Fn(&str, &Json) -> python_error::Result<Value>,
    from_request: bool,
) -> python_error::Result<std::rc::Rc<Dict>> {
    let mut entries = Vec::with_capacity(object.len());
    for (name, value) in object {
        let name_value = match from_request {
            true => Str::content(name.as_str()),
            false => Str::template(name.as_str()),
        };
        entries.push((Value::Str(name_value), value_of(name, value)?));
    }
    Dict::new(entries)
}

fn arguments(json: &str) -> Result<Map<String, Json>> {
    if json.is_empty() {
        return Ok(Map::new());
    }
    check_integers(json, "template_arguments")?;
    let object: Map<String, Json> = serde_json::from_str(json)
        .map_err(|e| Error::invalid(format!("template_arguments is not a JSON object: {e}")))?;
    for name in RESERVED {
        if object.contains_key(name) {
            return Err(Error::invalid(format!("template_arguments may not set \"{name}\"")));
        }
    }
    Ok(object)
}

/// Refuses integers that would be read as floats, since Python reads them as integers.
fn check_integers(json: &str, what: &str) -> Result<()> {
    let bytes = json.as_bytes();
    let (mut at, mut in_string) = (0, false);
    while at < bytes.len() {
        match bytes[at] {
            b'\\' if in_string => at += 1,
            b'"' => in_string = !in_string,
            b'0'..=b'9' if !in_string => {
                let begin = at;
                while at < bytes.len() && b"0123456789+-.eE".contains(&bytes[at]) {
                    at += 1;
                }
                let number = &json[begin..at];
                let signed = begin > 0 && bytes[begin - 1] == b'-';
                let fits = match signed {
                    true => format!("-{number}").parse::<i64>().is_ok(),
                    false => number.parse::<u64>().is_ok(),
                };
                if number.bytes().all(|b| b.is_ascii_digit()) && !fits {
                    return Err(Error::invalid(format!(
                        "{what} has an integer of more than 64 bits"
                    )));
                }
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    Ok(())
}

fn refusal(error: python_error::Error) -> Error {
    Error::invalid(match error.kind {
        Kind::OutOfSteps => format!("the chat template takes more than {MAX_STEPS} steps"),
        Kind::TooLong => {
            format!("the conversation has more than {MAX_TEXT_BYTES} bytes with its chat template")
        }
        Kind::Raised => format!("the chat template refuses the conversation: {error}"),
        Kind::Refused => format!("the chat template cannot be rendered here: {error}"),
    })
}

/// Cuts the rendering at the end of the final message's content, so that the answer continues there.
/// White space around the content counts only as far as the template kept it.
fn cut_after_final_message(rendered: Str, message: Option<Json>) -> Result<Str> {
    let content = message
        .as_ref()
        .and_then(|message| text_of(message.get("content")?))
        .ok_or_else(|| Error::invalid("the final message to continue has no text"))?;
    let text = rendered.as_str();
    let trimmed = content.trim();
    let start = text.rfind(trimmed).ok_or_else(|| {
        Error::invalid("the final message to continue is not in what the chat template renders")
    })?;
    let with_end = content.trim_start();
    let kept = if text[start..].starts_with(with_end) { with_end } else { trimmed };
    Ok(rendered.slice(0..start + kept.len()))
}

/// A content is a string, or parts of which the last one with a text counts.
fn text_of(content: &Json) -> Option<&str> {
    match content {
        Json::String(text) => Some(text),
        Json::Array(parts) => parts.iter().rev().find_map(|part| part.get("text")?.as_str()),
        _ => None,
    }
}

/// The text of parts that are all text, joined by newlines.
pub fn joined(parts: &[Json]) -> Option<String> {
    let text = |part: &Json| match part.get("type") {
        Some(Json::String(kind)) if kind == "text" => Some(part.get("text")?.as_str()?.to_owned()),
        _ => None,
    };
    Some(parts.iter().map(text).collect::<Option<Vec<String>>>()?.join("\n"))
}

/// Returns the content of a message in another form.
pub fn in_form(content: &Json, form: Form) -> Option<Json> {
    match (form, content) {
        (Form::Parts, Json::String(text)) => {
            Some(serde_json::json!([{"type": "text", "text": text}]))
        }
        (Form::String, Json::Array(parts)) => joined(parts).map(Json::String),
        _ => None,
    }
}
