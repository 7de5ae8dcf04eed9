// SPDX-License-Identifier: Apache-2.0
//! Control tokens that the tokenizer's files do not call special: they are added tokens that look like
//! control, and that the chat template writes.

use std::collections::BTreeSet;
use std::panic::{catch_unwind, AssertUnwindSafe};

use serde_json::{json, Value as Json};

use crate::forms::{call, tool};
use crate::template::{ChatRequest, ChatTemplate};
use crate::tokenizer::Tokenizer;

/// Most steps of one rendering.
const MAX_STEPS: u64 = if cfg!(fuzzing) { 2_000 } else { 30_000 };
/// Names of tags that a model itself writes around its thoughts and calls have one of these words.
const ANSWER_WORDS: [&str; 6] = ["think", "thought", "reason", "call", "arg", "function"];
const BRACKETS: [(&str, &str); 3] = [("<", ">"), ("[", "]"), ("◁", "▷")];

/// The added tokens that are control tokens without being special.
pub fn plain_control_tokens(tokenizer: &Tokenizer, template: &ChatTemplate) -> BTreeSet<String> {
    let plain = tokenizer.plain_added();
    let candidates: BTreeSet<&String> = plain.iter().filter(|text| is_marked(text)).collect();
    if candidates.is_empty() {
        return BTreeSet::new();
    }
    // The template writes what closes its turns.
    let ends: Vec<_> =
        tokenizer.named_ends.iter().filter_map(|id| tokenizer.name_of(*id)).collect();
    // A panic of a library counts as a refusal.
    let written = catch_unwind(AssertUnwindSafe(|| written(template))).unwrap_or_default();
    let is_control = |text: &str| {
        has_bars(text)
            || template.has_text(text)
            || written.iter().any(|part| part.contains(text))
            || ends.iter().any(|end| end == text)
    };
    let mut control: BTreeSet<String> =
        candidates.iter().filter(|text| is_control(text)).map(|text| text.to_string()).collect();
    // The partner of a control tag is one, too.
    let partners: Vec<String> = control
        .iter()
        .flat_map(|text| partners(text))
        .filter(|text| plain.contains(text))
        .collect();
    control.extend(partners);
    control
}

/// The tags among control tokens that a model itself writes around its thoughts and calls.
pub fn answer_tags(control: &BTreeSet<String>) -> Vec<String> {
    let is_tag = |text: &&String| {
        let text = text.to_lowercase();
        ANSWER_WORDS.iter().any(|word| text.contains(word))
    };
    let is_pair = |text: &&String| partners(text).iter().any(|other| control.contains(other));
    control.iter().filter(is_tag).filter(is_pair).cloned().collect()
}

/// True for a text with a letter that begins or ends with a sign. Words, white space and signs alone may be
/// added tokens for ordinary text, which templates write, too.
fn is_marked(text: &str) -> bool {
    let is_sign = |c: char| !c.is_alphanumeric() && !c.is_whitespace() && c != '\u{2581}';
    text.chars().count() > 2
        && text.chars().any(char::is_alphanumeric)
        && (text.starts_with(is_sign) || text.ends_with(is_sign))
}

/// True for `<|im_start|>`, `<｜User｜>`, `<|turn>`, `<turn|>`: texts that are written for nothing else.
fn has_bars(text: &str) -> bool {
    let bar = |c: Option<char>| matches!(c, Some('|' | '｜'));
    let Some(inner) = text.strip_prefix('<').and_then(|text| text.strip_suffix('>')) else {
        return false;
    };
    bar(inner.chars().next()) || bar(inner.chars().next_back())
}

/// `<x>` of `</x>`, and the other way round.
fn partners(text: &str) -> Vec<String> {
    let partner = |(open, close): &(&str, &str)| {
        let name = text.strip_prefix(open)?.strip_suffix(close)?;
        let is_name = |name: &str| {
            name.chars().all(|c| c.is_alphanumeric() || "_-:.".contains(c)) && !name.is_empty()
        };
        match name.strip_prefix('/') {
            Some(name) => is_name(name).then(|| format!("{open}{name}{close}")),
            None => is_name(name).then(|| format!("{open}/{name}{close}")),
        }
    };
    BRACKETS.iter().filter_map(partner).collect()
}

/// What the template writes by itself in conversations with turns, thoughts, calls and results.
fn written(template: &ChatTemplate) -> Vec<String> {
    let says = |role: &str| json!({"role": role, "content": "Zq7text"});
    let mut thinks = says("assistant");
    thinks["reasoning_content"] = json!("Zq7thought");
    thinks["reasoning"] = json!("Zq7thought");
    let calls = |arguments: Json| {
        let mut calls = json!({"role": "assistant", "content": "", "tool_calls": [call()]});
        calls["tool_calls"][0]["function"]["arguments"] = arguments;
        calls
    };
    let mut result = says("tool");
    result["tool_call_id"] = json!("call00000");
    result["name"] = json!("f");
    let user = says("user");
    let with = |calls: Json| vec![user.clone(), calls, result.clone()];
    let conversations = [
        vec![user.clone()],
        vec![says("system"), user.clone(), says("assistant"), user.clone()],
        vec![user.clone(), says("assistant"), user.clone(), says("assistant")],
        vec![user.clone(), thinks.clone(), user.clone(), thinks],
        with(calls(json!({"a": 1}))),
        with(calls(json!("{\"a\": 1}"))),
    ];
    let mut texts = Vec::new();
    for messages in conversations {
        for (tools, prompts) in [(Json::Null, true), (json!([tool()]), true), (Json::Null, false)] {
            let request = ChatRequest::trial(messages.clone(), tools, prompts);
            let Ok(rendered) = template.render_within(request, MAX_STEPS) else { continue };
            texts.extend(rendered.template_parts().map(str::to_owned));
        }
    }
    texts.sort_unstable();
    texts.dedup();
    texts
}
