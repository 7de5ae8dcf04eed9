// SPDX-License-Identifier: Apache-2.0
//! The tokens that end an answer, as far as the files of tokenizer and chat template name them.

use std::panic::{catch_unwind, AssertUnwindSafe};

use serde_json::{json, Map, Value};

use crate::template::{ChatRequest, ChatTemplate};
use crate::tokenizer::Tokenizer;

/// Contents that no template has a reason to change, and no template has in its own text.
const SYSTEM: &str = "Zq2system";
const QUESTION: &str = "Zq4question";
const ANSWER: &str = "Zq8answer";
const NEXT_QUESTION: &str = "Zq5question";

/// What every argument that a template may have is set to, one after the other, where it shows nothing
/// without arguments: texts that are false and true, and a value of each other type.
const ARGUMENTS: [&str; 6] = [r#""""#, r#""a""#, "true", "1", "[]", "{}"];
/// Most steps of one rendering with arguments.
const MAX_STEPS: u64 = if cfg!(fuzzing) { 2_000 } else { 200_000 };

/// Ids, ascending and distinct: each eos_token, and what closes a turn of the assistant. `known` are ends
/// that other files of the model name.
pub fn end_ids(tokenizer: &Tokenizer, template: &ChatTemplate, known: &[i32]) -> Vec<i32> {
    let mut ids = tokenizer.named_ends.clone();
    if template.exists() {
        let named = [&ids, known].concat();
        let reader = Reader { tokenizer, template, named };
        // A panic of a library counts as a refusal.
        let closing = catch_unwind(AssertUnwindSafe(|| reader.closing_token()));
        ids.extend(closing.ok().flatten());
    }
    ids.sort_unstable();
    ids.dedup();
    ids
}

/// What may stand in front of the closing token: the model writes it before it ends its turn.
#[derive(PartialEq)]
enum Before {
    Anything,
    Space,
}

struct Reader<'a> {
    tokenizer: &'a Tokenizer,
    template: &'a ChatTemplate,
    named: Vec<i32>,
}

type Turn<'a> = (&'a str, &'a str);
const TURNS: [Turn; 3] = [("user", QUESTION), ("assistant", ANSWER), ("user", NEXT_QUESTION)];

impl Reader<'_> {
    /// The special token that the template writes after what the assistant says, in the last turn or
    /// else before the next one. None where it writes none.
    fn closing_token(&self) -> Option<i32> {
        let last = self.render(&TURNS[..2]);
        let inner = self.render(&TURNS);
        let after_last = |text: &str| self.after_last_answer(text.rsplit_once(ANSWER)?.1);
        let shown = last.as_deref().and_then(after_last);
        let shown = shown.or_else(|| inner.as_deref().and_then(|text| self.before_next(text)));
        shown.or_else(|| self.with_arguments()).or_else(|| match (last, inner) {
            (None, None) => self.of_other_turns(),
            _ => None,
        })
    }

    /// `text` is all that follows the last turn.
    fn after_last_answer(&self, text: &str) -> Option<i32> {
        self.first_special(text, Before::Anything).or_else(|| {
            // A closing token that the files forgot to call special.
            match self.tokenizer.encode(text.trim(), false).ok()?[..] {
                [id] if self.tokenizer.is_added(id) => Some(id),
                _ => None,
            }
        })
    }

    /// `text` has all three turns.
    fn before_next(&self, text: &str) -> Option<i32> {
        let after = text.split_once(ANSWER)?.1;
        self.first_special(after.rsplit_once(NEXT_QUESTION)?.0, Before::Space)
    }

    /// A template may refuse conversations without an argument (the date, a list of functions), or close
    /// turns with one only (`is_training`). Every name that it reads gets the same value. Arguments may
    /// also begin an answer behind the last turn (`<think>`), so the turn before another one counts first.
    fn with_arguments(&self) -> Option<i32> {
        let names = self.template.argument_names();
        if names.is_empty() {
            return None;
        }
        ARGUMENTS.iter().find_map(|value| {
            let value: Value = serde_json::from_str(value).ok()?;
            let arguments: Map<_, _> =
                names.iter().map(|name| ((*name).to_owned(), value.clone())).collect();
            let arguments = Value::Object(arguments).to_string();
            let inner = || self.before_next(&self.render_with(&TURNS, &arguments, MAX_STEPS)?);
            let last = || {
                let text = self.render_with(&TURNS[..2], &arguments, MAX_STEPS)?;
                self.first_special(text.rsplit_once(ANSWER)?.1, Before::Space)
            };
            inner().or_else(last)
        })
    }

    /// The token that closes turns of the system and of the user alike, for a template that refuses all
    /// of the assistant.
    fn of_other_turns(&self) -> Option<i32> {
        let text = self.render(&[("system", SYSTEM), ("user", QUESTION)])?;
        let (head, after_question) = text.rsplit_once(QUESTION)?;
        let after_system = head.split_once(SYSTEM)?.1;
        let closing = self.first_special(after_question, Before::Space)?;
        (self.first_special(after_system, Before::Space)? == closing).then_some(closing)
    }

    /// The first special token. Where others follow it at once and one of them is named as an end, that
    /// one: the first closes a part of the turn only.
    fn first_special(&self, text: &str, before: Before) -> Option<i32> {
        let ids = self.tokenizer.encode(text, false).ok()?;
        let table = &self.tokenizer.table;
        let is_special = |id: &i32| table.is_special[*id as usize] != 0;
        let first = ids.iter().position(is_special)?;
        if before == Before::Space && !ids[..first].iter().all(|id| table.is_space(*id as usize)) {
            return None;
        }
        let mut run = ids[first..].iter().take_while(|id| is_special(id));
        Some(*run.find(|id| self.named.contains(id)).unwrap_or(&ids[first]))
    }

    fn render(&self, turns: &[Turn]) -> Option<String> {
        self.render_with(turns, "", crate::template::MAX_STEPS)
    }

    /// Renders at the beginning of Unix time: the result depends on the files alone. A template for
    /// tools may refuse to render without any.
    fn render_with(&self, turns: &[Turn], arguments: &str, steps: u64) -> Option<String> {
        let messages: Vec<_> =
            turns.iter().map(|(role, content)| json!({"role": role, "content": content})).collect();
        [json!(null), json!([])].into_iter().find_map(|tools| {
            let request = json!({"messages": messages, "tools": tools, "add_generation_prompt": false,
                "template_arguments": arguments});
            let request = ChatRequest::parse(&request.to_string()).ok()?;
            Some(self.template.render_within(request, steps).ok()?.as_str().to_owned())
        })
    }
}
