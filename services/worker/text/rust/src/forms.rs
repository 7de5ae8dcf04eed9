// SPDX-License-Identifier: Apache-2.0
//! Whether a template wants the content of a message as a string or as a list of parts. A template that
//! loops over parts renders nothing of a string, and one that adds strings fails for a list. Both forms are
//! rendered for each role when a template is loaded; where neither shows in the prompt, the template's
//! syntax tells.

use std::cell::Cell;

use serde_json::{json, Value as Json};

use crate::error::Result;
use crate::jinja::contents::Contents;
use crate::python::error::steps_left;
use crate::python::text::Str;
use crate::template::{in_form, ChatRequest};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    String,
    /// `[{"type": "text", "text": …}]`
    Parts,
}

/// Says whether a role's content appears when it is given as a string and as parts.
#[derive(Clone, Copy)]
struct Renders {
    string: bool,
    parts: bool,
}

/// How much of a content a prompt shows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Shown {
    /// The template refuses the conversation.
    Refused,
    /// The prompt does not depend on it, or has it as Python's or JSON's list of parts.
    Nothing,
    /// The prompt depends on it.
    Changed,
    Whole,
}

#[derive(Default)]
pub struct Forms {
    /// By role. Other roles are as the user's.
    roles: Vec<(String, Renders)>,
    /// The roles of which conversations show nothing, and those of which all are refused.
    pub lost: Vec<&'static str>,
    pub refused: Vec<&'static str>,
}

const ROLES: [&str; 4] = ["user", "system", "assistant", "tool"];
/// Most further roles that are tried: those that the template names.
const MAX_ROLES: usize = 8;
/// Texts of one length, of which a prompt shows that it depends on the content.
const MARK: &str = "continuo5mark";
const OTHER_MARK: &str = "zebra7quixotk";
/// Most steps of one attempt, and of all.
const MAX_STEPS: u64 = 50_000;
const MAX_ALL_STEPS: u64 = 400_000;

struct Trials<'a> {
    render: &'a dyn Fn(&ChatRequest, u64) -> Result<Str>,
    left: Cell<u64>,
}

impl Trials<'_> {
    fn prompt(&self, messages: Vec<Json>, tools: &Json) -> Option<String> {
        let steps = self.left.get().min(MAX_STEPS);
        if steps == 0 {
            return None;
        }
        let rendered = (self.render)(&ChatRequest::trial(messages, tools.clone(), true), steps);
        self.left.set(self.left.get() - steps + steps_left().min(steps));
        Some(rendered.ok()?.as_str().to_lowercase())
    }

    /// What conversations show of a role's content as a string and as parts, in the first of them that
    /// shows any.
    fn shown(&self, forms: &Forms, role: &str) -> [Shown; 2] {
        let mut best = [Shown::Refused; 2];
        for tools in [Json::Null, json!([tool()])] {
            for place in 0..2 {
                let prompt = |form: Form, text: &str| {
                    self.prompt(conversation(forms, role, place, form, text)?, &tools)
                };
                let string = prompt(Form::String, MARK);
                let parts = prompt(Form::Parts, MARK);
                let kinds = |text: &Option<String>| text.as_deref().map_or(0, num_kinds);
                let shown = |form: Form, text: &Option<String>| {
                    let Some(text) = text else { return Shown::Refused };
                    if form == Form::Parts && num_kinds(text) > kinds(&string) {
                        return Shown::Nothing;
                    }
                    if text.contains(MARK) {
                        return Shown::Whole;
                    }
                    match prompt(form, OTHER_MARK) {
                        Some(other) if other != *text => Shown::Changed,
                        _ => Shown::Nothing,
                    }
                };
                let now = [shown(Form::String, &string), shown(Form::Parts, &parts)];
                if now.iter().max() > best.iter().max() {
                    best = now;
                }
                if best.iter().any(|shown| *shown == Shown::Whole) {
                    return best;
                }
            }
        }
        best
    }
}

/// Counts what a printed part has and a text has not: the name of its kind.
fn num_kinds(text: &str) -> usize {
    ["'type'", "\"type\"", "&#39;type&#39;", "&#34;type&#34;"]
        .iter()
        .map(|quoted| text.matches(quoted).count())
        .sum()
}

impl Forms {
    /// Tries both forms for each role. Needs a large stack.
    pub fn find(contents: &Contents, render: &dyn Fn(&ChatRequest, u64) -> Result<Str>) -> Forms {
        let trials = Trials { render, left: Cell::new(MAX_ALL_STEPS) };
        let mut forms = Forms::default();
        let others = contents.roles.iter().map(String::as_str);
        let others = others.filter(|role| !ROLES.contains(role)).take(MAX_ROLES);
        for role in ROLES.into_iter().chain(others) {
            let [string, parts] = trials.shown(&forms, role);
            let most = string.max(parts);
            let renders = match most {
                Shown::Refused | Shown::Nothing => {
                    if let Some(role) = ROLES[..3].iter().find(|known| **known == role) {
                        let list = match most {
                            Shown::Refused => &mut forms.refused,
                            _ => &mut forms.lost,
                        };
                        list.push(role);
                    }
                    let parts = contents.wants_parts(role);
                    Renders { string: !parts, parts }
                }
                most => Renders { string: string == most, parts: parts == most },
            };
            forms.roles.push((role.to_owned(), renders));
        }
        forms
    }

    fn of(&self, role: &str) -> Option<Renders> {
        let named =
            |name: &str| self.roles.iter().find(|(role, _)| role == name).map(|(_, of)| *of);
        named(role).or_else(|| named(if role == "developer" { "system" } else { "user" }))
    }

    /// Gives the content of a message the form that the template renders.
    pub fn apply(&self, message: &mut Json) {
        let renders = self.of(message["role"].as_str().unwrap_or_default());
        let wanted = match (&message["content"], renders) {
            (Json::String(_), Some(Renders { string: false, parts: true })) => Form::Parts,
            (Json::Array(_), Some(Renders { string: true, parts: false })) => Form::String,
            _ => return,
        };
        if let Some(content) = in_form(&message["content"], wanted) {
            message["content"] = content;
        }
    }
}

/// A function, as a request has it.
pub fn tool() -> Json {
    json!({"type": "function", "function": {"name": "f", "description": "F.",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}})
}

/// An assistant's call of it.
pub fn call() -> Json {
    json!({"id": "call00000", "type": "function",
        "function": {"name": "f", "arguments": {"a": 1}}})
}

/// A conversation in which a role says `text` in one form, and others have the forms that are known.
fn conversation(
    forms: &Forms,
    role: &str,
    place: usize,
    form: Form,
    text: &str,
) -> Option<Vec<Json>> {
    let other = |role: &str, text: &str| {
        let mut message = json!({"role": role, "content": text});
        forms.apply(&mut message);
        message
    };
    let mut says = json!({"role": role, "content": text});
    if let Some(content) = in_form(&says["content"], form) {
        says["content"] = content;
    }
    let messages = match (role, place) {
        ("user", 0) => vec![says],
        ("user", _) => vec![other("system", "s"), says],
        ("system", 0) => vec![says, other("user", "u")],
        ("assistant", 0) => vec![other("user", "u"), says, other("user", "u")],
        ("tool", 0) => {
            let mut calls = other("assistant", "a");
            calls["tool_calls"] = json!([call()]);
            says["tool_call_id"] = json!("call00000");
            says["name"] = json!("f");
            vec![other("user", "u"), calls, says]
        }
        ("system" | "assistant" | "tool", _) => return None,
        (_, 0) => vec![other("user", "u"), says],
        _ => vec![says, other("user", "u")],
    };
    Some(messages)
}
