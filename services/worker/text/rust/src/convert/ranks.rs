// SPDX-License-Identifier: Apache-2.0
//! Byte-level BPE of tokens with ranks (tiktoken's form), as the merges of tokenizer.json.
//!
//! tiktoken joins the two neighbours whose joint bytes are the token of the least rank. Merges by rank do
//! the same where each pair of tokens that makes a token has that token's rank; a word that is a token as
//! a whole is that one in both.

use std::collections::HashMap;

use serde_json::{json, Map, Value};

use super::cuts::Cuts;
use super::{Added, MAX_VOCAB};
use crate::error::{Error, Result};

/// Longer tokens have no merges: only a word that is such a token as a whole becomes it.
const MAX_MERGED_BYTES: usize = 1024;
/// The work for all merges, in bytes that are compared.
const MAX_WORK: u64 = 1 << 32;

/// How a text is divided into words.
pub struct Words<'a> {
    /// A regular expression; what it does not match is a word, too.
    pub pattern: &'a str,
    /// Texts are brought to Unicode's form C first.
    pub nfc: bool,
}

/// The tokenizer of `tokens`, bytes with their ids. Smaller ids are joined first. `added` have ids that
/// no token has.
pub fn tokenizer(
    tokens: &[(Vec<u8>, usize)],
    words: &Words,
    added: &[Added],
    post_processor: Value,
) -> Result<Map<String, Value>> {
    let mut ids: HashMap<&[u8], usize> = HashMap::with_capacity(tokens.len());
    let mut contents: HashMap<usize, &[u8]> = HashMap::with_capacity(tokens.len());
    for (bytes, id) in tokens {
        if *id >= MAX_VOCAB {
            return Err(Error::invalid(format!("token id {id}, the limit is {}", MAX_VOCAB - 1)));
        }
        if bytes.is_empty() {
            return Err(Error::invalid(format!("token {id} is empty")));
        }
        if ids.insert(bytes, *id).is_some() || contents.insert(*id, bytes).is_some() {
            return Err(Error::invalid(format!("token {id} is there twice")));
        }
    }
    if let Some(byte) = (0..=255u8).find(|byte| !ids.contains_key([*byte].as_slice())) {
        return Err(Error::invalid(format!("no token is the byte {byte}")));
    }
    let merges = merges(tokens, &ids)?;
    let mut vocab = Map::with_capacity(tokens.len() + added.len());
    for (bytes, id) in tokens {
        vocab.insert(written(bytes), json!(id));
    }
    for token in added {
        if contents.contains_key(&token.id) {
            return Err(Error::invalid(format!("the id {} is of two tokens", token.id)));
        }
        if vocab.insert(token.content.clone(), json!(token.id)).is_some() {
            return Err(Error::invalid(format!(
                "the added token {:?} is a token, too",
                token.content
            )));
        }
    }
    let object = json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": added.iter().map(Added::json).collect::<Vec<_>>(),
        "normalizer": words.nfc.then(|| json!({"type": "NFC"})),
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": words.pattern}, "behavior": "Isolated", "invert": false},
            {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}]},
        "post_processor": post_processor,
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                  "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
                  "ignore_merges": true, "vocab": vocab, "merges": merges},
    });
    match object {
        Value::Object(object) => Ok(object),
        _ => Err(Error::invalid("is no tokenizer")),
    }
}

fn merges(tokens: &[(Vec<u8>, usize)], ids: &HashMap<&[u8], usize>) -> Result<Vec<Value>> {
    let mut ordered: Vec<&(Vec<u8>, usize)> =
        tokens.iter().filter(|(bytes, _)| (2..=MAX_MERGED_BYTES).contains(&bytes.len())).collect();
    let work: u64 = ordered.iter().map(|(bytes, _)| (bytes.len() * bytes.len()) as u64).sum();
    if work > MAX_WORK {
        return Err(Error::invalid("its tokens are too long"));
    }
    ordered.sort_unstable_by_key(|(_, id)| *id);
    let mut cuts = Cuts::default();
    for (index, (bytes, _)) in ordered.iter().enumerate() {
        let pair = |at: usize| Some((*ids.get(&bytes[..at])?, *ids.get(&bytes[at..])?, at));
        let mut pairs: Vec<_> = (1..bytes.len()).filter_map(pair).collect();
        pairs.sort_unstable();
        let length = bytes.iter().map(|byte| char_of_byte(*byte).len_utf8()).sum();
        for (_, _, at) in pairs {
            cuts.push(index, at, length)?;
        }
    }
    let merge = |(index, at): (usize, usize)| {
        let bytes = &ordered[index].0;
        json!([written(&bytes[..at]), written(&bytes[at..])])
    };
    Ok(cuts.iter().map(merge).collect())
}

/// Bytes in GPT-2's characters, as byte-level vocabularies have them.
fn written(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char_of_byte(*byte)).collect()
}

/// GPT-2's map: printable Latin-1 characters stand for themselves, the other 68 bytes are U+0100, U+0101, …
/// in their order.
fn char_of_byte(byte: u8) -> char {
    let code = match byte {
        0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff => u32::from(byte),
        0..=0x20 => 0x100 + u32::from(byte),
        0x7f..=0xa0 => 0x121 + u32::from(byte - 0x7f),
        0xad => 0x143,
    };
    char::from_u32(code).unwrap_or('\u{fffd}')
}
