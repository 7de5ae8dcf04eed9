// SPDX-License-Identifier: Apache-2.0
//! The tokens that end an answer, as far as the files of tokenizer and chat template name them.

use std::panic::{catch_unwind, AssertUnwindSafe};

use serde_json::json;

use crate::template::{ChatRequest, ChatTemplate};
use crate::tokenizer::Tokenizer;

/// Contents that no template has a reason to change, and no template has in its own text.
const QUESTION: &str = "Zq4question";
const ANSWER: &str = "Zq8answer";
const NEXT_QUESTION: &str = "Zq5question";

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

impl Reader<'_> {
    /// The special token that the template writes after what the assistant says, in the last turn or
    /// else before the next one. None where it writes none, or refuses such conversations.
    fn closing_token(&self) -> Option<i32> {
        let turns = [("user", QUESTION), ("assistant", ANSWER), ("user", NEXT_QUESTION)];
        let last = || {
            let text = self.render(&turns[..2])?;
            self.after_last_answer(text.rsplit_once(ANSWER)?.1)
        };
        let inner = || {
            let text = self.render(&turns)?;
            let after = text.split_once(ANSWER)?.1;
            self.first_special(after.rsplit_once(NEXT_QUESTION)?.0, Before::Space)
        };
        last().or_else(inner)
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

    /// Renders at the beginning of Unix time: the result depends on the files alone. A template for
    /// tools may refuse to render without any.
    fn render(&self, turns: &[(&str, &str)]) -> Option<String> {
        let messages: Vec<_> =
            turns.iter().map(|(role, content)| json!({"role": role, "content": content})).collect();
        [json!(null), json!([])].into_iter().find_map(|tools| {
            let request =
                json!({"messages": messages, "tools": tools, "add_generation_prompt": false});
            let request = ChatRequest::parse(&request.to_string()).ok()?;
            Some(self.template.render(request).ok()?.as_str().to_owned())
        })
    }
}
