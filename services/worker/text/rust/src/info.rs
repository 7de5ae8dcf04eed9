// SPDX-License-Identifier: Apache-2.0
//! The description that lets a client use a model's tokenizer and chat template itself.

use serde_json::{Map, Value};

use crate::files::{token_content, Config};

/// Larger ones lose their largest members.
const MAX_BYTES: usize = 2 << 20;
/// Members that name files of the folder, or the folder.
const PATHS: [&str; 4] = ["vocab_file", "merges_file", "tokenizer_file", "name_or_path"];
/// Members that there are in any case.
const NAMES: [&str; 3] = ["bos_token", "eos_token", "pad_token"];

/// tokenizer_config.json with special tokens as plain text, those of special_tokens_map.json where it
/// has none, and the chat template that is used.
pub fn tokenizer_info(config: &Config) -> Map<String, Value> {
    let mut info = config.config.clone();
    info.retain(|name, _| !PATHS.contains(&name.as_str()) && name != "chat_template");
    info.values_mut().for_each(make_plain);
    for (name, token) in &config.special_tokens {
        info.insert(name.clone(), token.clone());
    }
    for name in NAMES {
        info.entry(name).or_insert(Value::Null);
    }
    info.entry("tokenizer_class").or_insert("PreTrainedTokenizerFast".into());
    if let Some(template) = &config.template {
        info.insert("chat_template".to_owned(), template.as_str().into());
    }
    info
}

/// The JSON of `info`. `end` is its eos_token where the files name none.
pub fn json_of(info: &Map<String, Value>, end: Option<String>) -> String {
    let mut info = info.clone();
    if info.get("eos_token").is_none_or(Value::is_null) {
        info.insert("eos_token".to_owned(), end.into());
    }
    loop {
        let json = Value::Object(info.clone()).to_string();
        if json.len() <= MAX_BYTES {
            return json;
        }
        let size = |value: &Value| value.to_string().len();
        let largest = info.iter().max_by_key(|(_, value)| size(value)).map(|(name, _)| name.clone());
        match largest {
            Some(name) => info.remove(&name),
            None => return json,
        };
    }
}

/// A token may be written as an object with its content and flags.
fn make_plain(value: &mut Value) {
    if let (Value::Object(_), Some(content)) = (&*value, token_content(value)) {
        *value = content.into();
        return;
    }
    match value {
        Value::Object(members) => members.values_mut().for_each(make_plain),
        Value::Array(items) => items.iter_mut().for_each(make_plain),
        _ => {}
    }
}
