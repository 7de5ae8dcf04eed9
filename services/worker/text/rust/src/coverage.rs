// SPDX-License-Identifier: Apache-2.0
//! Whether the tokens of a text have all of its bytes.

use serde_json::{Map, Value};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;

/// True where every byte of a text is one of the bytes of a token in the table, so that n bytes need at least n
/// divided by the longest token's: byte-level BPE that changes nothing before it. Others drop white space or accents,
/// join characters, or have one token for a whole word that they do not know.
pub fn keeps_bytes(tokenizer: &Map<String, Value>) -> bool {
    let part = |name: &str| tokenizer.get(name).unwrap_or(&Value::Null);
    let model = part("model");
    let is_empty = |value: &Value| value.is_null() || value == "";
    let strips = |token: &Value| token["lstrip"] == true || token["rstrip"] == true;
    model["type"] == "BPE"
        && is_empty(&model["continuing_subword_prefix"])
        && is_empty(&model["end_of_word_suffix"])
        && ByteLevel::alphabet().iter().all(|c| model["vocab"].get(c.to_string()).is_some())
        && part("normalizer").is_null()
        && cuts_bytes(part("pre_tokenizer"))
        && part("decoder")["type"] == "ByteLevel"
        && !part("added_tokens").as_array().is_some_and(|added| added.iter().any(strips))
}

/// True for a pre-tokenizer that cuts texts, drops nothing of them, and ends with bytes.
fn cuts_bytes(step: &Value) -> bool {
    if step["type"] != "Sequence" {
        return step["type"] == "ByteLevel";
    }
    let Some((last, cuts)) = step["pretokenizers"].as_array().and_then(|steps| steps.split_last())
    else {
        return false;
    };
    let drops_nothing = |cut: &Value| match cut["type"].as_str() {
        Some("Split" | "Punctuation") => cut["behavior"] != "Removed",
        Some("Digits") => true,
        _ => false,
    };
    last["type"] == "ByteLevel" && cuts.iter().all(drops_nothing)
}
