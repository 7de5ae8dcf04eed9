// SPDX-License-Identifier: Apache-2.0
//! Whether a template wants the content of a message as a string or as a list of parts. A template that
//! loops over parts renders nothing of a string, and one that adds strings fails for a list, so both are
//! tried when a template is loaded.

use serde_json::{json, Value as Json};

use crate::error::Result;
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

impl Default for Renders {
    fn default() -> Self {
        Renders { string: true, parts: false }
    }
}

/// By role: user (and any other), system, assistant, tool.
#[derive(Default)]
pub struct Forms([Renders; 4]);

const MARK: &str = "continuo5mark";
/// Most steps of one attempt.
const MAX_STEPS: u64 = 200_000;

impl Forms {
    /// Tries both forms for each role.
    pub fn find(render: impl Fn(&ChatRequest, u64) -> Result<Str>) -> Forms {
        let attempt = |place: usize, form: Form| {
            conversations(place, form).into_iter().any(|messages| {
                let request = ChatRequest {
                    messages,
                    tools: Json::Null,
                    documents: Json::Null,
                    add_generation_prompt: true,
                    continue_final_message: false,
                    template_arguments: String::new(),
                    chat_template: String::new(),
                    now_seconds: 0,
                };
                let Ok(text) = render(&request, MAX_STEPS) else { return false };
                let text = text.as_str();
                // Parts that are printed as Python's or as JSON are not understood.
                text.contains(MARK)
                    && ["'type'", "\"type\""].iter().all(|quoted| !text.contains(quoted))
            })
        };
        let mut forms = Forms::default();
        for (place, renders) in forms.0.iter_mut().enumerate() {
            renders.string = attempt(place, Form::String);
            renders.parts = attempt(place, Form::Parts);
            if place == 0 && !renders.string && !renders.parts {
                break;
            }
        }
        forms
    }

    fn of(&self, role: &str) -> Renders {
        self.0[match role {
            "system" | "developer" => 1,
            "assistant" => 2,
            "tool" => 3,
            _ => 0,
        }]
    }

    /// Gives the content of a message the form that the template renders.
    pub fn apply(&self, message: &mut Json) {
        let renders = self.of(message["role"].as_str().unwrap_or_default());
        let wanted = match (&message["content"], renders) {
            (Json::String(_), Renders { string: false, parts: true }) => Form::Parts,
            (Json::Array(_), Renders { string: true, parts: false }) => Form::String,
            _ => return,
        };
        if let Some(content) = in_form(&message["content"], wanted) {
            message["content"] = content;
        }
    }
}

/// Conversations in which the role at `place` says the mark.
fn conversations(place: usize, form: Form) -> Vec<Vec<Json>> {
    let message = |role: &str, text: &str| {
        let mut message = json!({"role": role, "content": text});
        if let Some(content) = in_form(&message["content"], form) {
            message["content"] = content;
        }
        message
    };
    match place {
        0 => vec![vec![message("user", MARK)], vec![message("system", "s"), message("user", MARK)]],
        1 => vec![vec![message("system", MARK), message("user", "u")]],
        2 => vec![vec![message("user", "u"), message("assistant", MARK), message("user", "u")]],
        _ => {
            let mut call = message("assistant", "a");
            call["tool_calls"] = json!([{"id": "call00000", "type": "function",
                "function": {"name": "f", "arguments": {"a": 1}}}]);
            let mut result = message("tool", MARK);
            result["tool_call_id"] = json!("call00000");
            result["name"] = json!("f");
            vec![vec![message("user", "u"), call, result]]
        }
    }
}
