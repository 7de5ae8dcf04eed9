// SPDX-License-Identifier: Apache-2.0
//! Tokenizers in other files than tokenizer.json, as the JSON that Hugging Face would write for them.
//!
//! Files may say anything: whatever does not fit is an error that names it. Ids are the files' own.

mod cuts;
mod protobuf;
mod ranks;
mod sentencepiece;
mod tekken;
mod tiktoken;

use serde_json::{json, Map, Value};

use crate::error::{Code, Error, Result};
use crate::files::token_content;

/// Token ids are below this.
pub const MAX_VOCAB: usize = 1 << 22;

/// A tokenizer that was made of another file.
pub struct Made {
    /// The contents of a tokenizer.json.
    pub tokenizer: Map<String, Value>,
    /// Members of tokenizer_config.json for which the folder has none: bos_token, eos_token ….
    pub defaults: Map<String, Value>,
}

/// The contents of the folder's other files.
pub struct Beside<'a> {
    /// tokenizer_config.json.
    pub config: &'a Map<String, Value>,
    /// added_tokens.json: token to id.
    pub added_tokens: &'a Map<String, Value>,
}

/// Makes the tokenizer of a file by its name and contents.
pub fn convert(name: &str, bytes: &[u8], beside: &Beside) -> Result<Made> {
    let made = match name {
        "tekken.json" => tekken::convert(bytes, beside),
        _ if tiktoken::is_ranks(bytes) => tiktoken::convert(name, bytes, beside),
        _ if name.ends_with(".tiktoken") => {
            Err(Error::invalid("has no lines of a token and its rank"))
        }
        _ => sentencepiece::convert(bytes, beside),
    };
    made.map_err(|e| e.in_file(name))
}

/// A token beside the vocabulary's own, found in a text as a whole.
#[derive(Clone, Debug, PartialEq)]
pub struct Added {
    pub id: usize,
    pub content: String,
    pub special: bool,
    pub normalized: bool,
    pub lstrip: bool,
    pub rstrip: bool,
    pub single_word: bool,
}

impl Added {
    fn new(id: usize, content: impl Into<String>, special: bool) -> Added {
        let content = content.into();
        Added {
            id,
            content,
            special,
            normalized: false,
            lstrip: false,
            rstrip: false,
            single_word: false,
        }
    }

    fn json(&self) -> Value {
        json!({"id": self.id, "content": self.content, "single_word": self.single_word,
               "lstrip": self.lstrip, "rstrip": self.rstrip, "normalized": self.normalized,
               "special": self.special})
    }
}

/// The file's own added tokens and those that the folder names; the folder's count where both name an id.
fn with_folder(own: Vec<Added>, beside: &Beside) -> Result<Vec<Added>> {
    let mut all: std::collections::BTreeMap<usize, Added> =
        own.into_iter().map(|token| (token.id, token)).collect();
    for (content, id) in beside.added_tokens {
        let id = id.as_u64().map(|id| id as usize).filter(|id| *id < MAX_VOCAB);
        let id = id.ok_or_else(|| {
            Error::invalid(format!("added_tokens.json: {content:?} has no id below {MAX_VOCAB}"))
        })?;
        all.entry(id).or_insert_with(|| Added::new(id, content, false));
    }
    if let Some(Value::Object(tokens)) = beside.config.get("added_tokens_decoder") {
        for (id, token) in tokens {
            let named = id.parse::<usize>().ok().filter(|id| *id < MAX_VOCAB);
            let (Some(id), Some(content)) = (named, token_content(token)) else {
                return Err(Error::invalid(format!(
                    "tokenizer_config.json: added_tokens_decoder has {id:?}, which is no id of a token"
                )));
            };
            let flag = |name: &str| token.get(name).and_then(Value::as_bool).unwrap_or(false);
            all.insert(
                id,
                Added {
                    id,
                    content: content.to_owned(),
                    special: flag("special"),
                    normalized: flag("normalized"),
                    lstrip: flag("lstrip"),
                    rstrip: flag("rstrip"),
                    single_word: flag("single_word"),
                },
            );
        }
    }
    let mut contents = std::collections::HashSet::new();
    for token in all.values() {
        if token.content.is_empty() {
            return Err(Error::invalid(format!("the added token of the id {} is empty", token.id)));
        }
        if !contents.insert(token.content.as_str()) {
            return Err(Error::invalid(format!("two added tokens are {:?}", token.content)));
        }
    }
    Ok(all.into_values().collect())
}

/// The post-processor that puts BOS and EOS around a text.
fn post_processor(bos: Option<(&str, usize)>, eos: Option<(&str, usize)>) -> Value {
    if bos.is_none() && eos.is_none() {
        return Value::Null;
    }
    let token = |name: &str| json!({"SpecialToken": {"id": name, "type_id": 0}});
    let text = |id: &str, kind: u32| json!({"Sequence": {"id": id, "type_id": kind}});
    let around = |texts: Vec<Value>| -> Vec<Value> {
        let first = bos.map(|(name, _)| token(name));
        let last = eos.map(|(name, _)| token(name));
        first.into_iter().chain(texts).chain(last).collect()
    };
    let special: Map<String, Value> = [bos, eos]
        .into_iter()
        .flatten()
        .map(|(name, id)| (name.to_owned(), json!({"id": name, "ids": [id], "tokens": [name]})))
        .collect();
    json!({"type": "TemplateProcessing", "single": around(vec![text("A", 0)]),
           "pair": around(vec![text("A", 0), text("B", 1)]), "special_tokens": special})
}

/// True unless tokenizer_config.json says otherwise.
fn adds(config: &Map<String, Value>, field: &str, default: bool) -> bool {
    config.get(field).and_then(Value::as_bool).unwrap_or(default)
}

fn unimplemented(message: impl Into<String>) -> Error {
    Error::new(Code::Unimplemented, message)
}
