// SPDX-License-Identifier: Apache-2.0
//! tokenizer.json as Hugging Face reads it, with what tokenizer_config.json adds.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::{json, Map, Value};
use tokenizers::models::ModelWrapper;
use tokenizers::Tokenizer as HfTokenizer;

use crate::content::ControlTokens;
use crate::coverage::keeps_bytes;
use crate::decoder::TokenTable;
use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::files::{token_content, Config};
use crate::python::text::Span;

/// Token ids are below this; tables are as large as the largest id.
const MAX_VOCAB: usize = 1 << 22;

pub struct Tokenizer {
    tokenizer: HfTokenizer,
    control: ControlTokens,
    pub table: TokenTable,
    /// Every byte of a text is one of a token's.
    pub keeps_bytes: bool,
    pub digest: String,
    /// The ids of what the files call eos_token.
    pub named_ends: Vec<i32>,
    /// What they call so and the vocabulary lacks.
    pub unknown_ends: Vec<String>,
}

/// Two texts as the tokenizer joins them.
pub struct EncodedPair {
    pub ids: Vec<i32>,
    /// Of each token: the part of the whole that it counts to.
    pub types: Vec<i32>,
    /// The tokens of the second text.
    pub second: Span,
}

impl Tokenizer {
    pub fn new(json: &[u8], config: &Config) -> Result<Tokenizer> {
        let mut value: Value =
            serde_json::from_slice(json).map_err(|e| Error::invalid(format!("not JSON: {e}")))?;
        let object = value.as_object_mut().ok_or_else(|| Error::invalid("not a JSON object"))?;
        Tokenizer::of_object(std::mem::take(object), config)
    }

    /// The tokenizer of a JSON that was made here, whose added tokens have the ids that it says.
    pub fn made(object: Map<String, Value>, config: &Config) -> Result<Tokenizer> {
        let added = object.get("added_tokens").cloned().unwrap_or_default();
        let made = Tokenizer::of_object(object, config)?;
        for token in added.as_array().into_iter().flatten() {
            let content = token["content"].as_str().unwrap_or("");
            if made.tokenizer.token_to_id(content).map(u64::from) != token["id"].as_u64() {
                return Err(Error::invalid(format!(
                    "the added token {content:?} cannot have its id"
                )));
            }
        }
        Ok(made)
    }

    fn of_object(mut object: Map<String, Value>, config: &Config) -> Result<Tokenizer> {
        check_character_maps(object.get("normalizer").unwrap_or(&Value::Null))?;
        adjust(&mut object, config);
        let mut digest = Digest::new("continuo tokenizer");
        digest.object(&object);
        let keeps_bytes = keeps_bytes(&object);

        let tokenizer = HfTokenizer::deserialize(Value::Object(object))
            .map_err(|e| Error::invalid(e.to_string()))?;
        let tokens = tokens_by_id(&tokenizer)?;
        let table = TokenTable::new(&tokenizer, tokens)?;
        let control = ControlTokens::new(&tokenizer, &BTreeSet::new())?;
        let (mut named_ends, mut unknown_ends) = (Vec::new(), Vec::new());
        for token in &config.end_tokens {
            match tokenizer.token_to_id(token).and_then(|id| i32::try_from(id).ok()) {
                Some(id) => named_ends.push(id),
                None => unknown_ends.push(token.clone()),
            }
        }
        unknown_ends.dedup();
        let digest = digest.hex();
        Ok(Tokenizer { tokenizer, control, table, keeps_bytes, digest, named_ends, unknown_ends })
    }

    /// Counts these added tokens as control tokens of conversations, beside the special ones.
    pub fn add_control_tokens(&mut self, others: &BTreeSet<String>) -> Result<()> {
        self.control = ControlTokens::new(&self.tokenizer, others)?;
        Ok(())
    }

    /// The texts of added tokens that are not special.
    pub fn plain_added(&self) -> BTreeSet<String> {
        let added = self.tokenizer.get_added_vocabulary().get_added_tokens_decoder();
        added.values().filter(|token| !token.special).map(|token| token.content.clone()).collect()
    }

    /// The algorithm, in the words of the field.
    pub fn kind(&self) -> &'static str {
        match self.tokenizer.get_model() {
            ModelWrapper::BPE(bpe) if bpe.byte_fallback => "BPE with byte fallback",
            ModelWrapper::BPE(_) if self.table.is_byte_level => "byte-level BPE",
            ModelWrapper::BPE(_) => "BPE",
            ModelWrapper::Unigram(_) => "unigram",
            ModelWrapper::WordPiece(_) => "WordPiece",
            ModelWrapper::WordLevel(_) => "word-level",
        }
    }

    /// True for a token that is found in a text as a whole, special or not.
    pub fn is_added(&self, id: i32) -> bool {
        self.tokenizer.get_added_vocabulary().get_added_tokens_decoder().contains_key(&(id as u32))
    }

    /// The token as the vocabulary writes it; None for an id that names none.
    pub fn name_of(&self, id: i32) -> Option<String> {
        self.tokenizer.id_to_token(u32::try_from(id).ok()?)
    }

    pub fn encode(&self, text: &str, add_special: bool) -> Result<Vec<i32>> {
        let encoding = self
            .tokenizer
            .encode_fast(text, add_special)
            .map_err(|e| Error::invalid(format!("the tokenizer refuses the text: {e}")))?;
        self.checked(encoding.get_ids())
    }

    /// Encodes two texts as the tokenizer joins them, with its special tokens. Those written in the texts are the
    /// characters that they are, unless `parse_special`.
    pub fn encode_pair(
        &self,
        first: &str,
        second: &str,
        parse_special: bool,
    ) -> Result<EncodedPair> {
        let joined = if parse_special {
            self.tokenizer.encode_fast((first, second), true)
        } else {
            let own = |text: &str, kind: u32| {
                self.control.encode(&self.tokenizer, text, &[(0, text.len())], kind)
            };
            // As the library does it: a post-processor may set other types.
            self.tokenizer.post_process(own(first, 0)?, Some(own(second, 1)?), true)
        };
        let encoding =
            joined.map_err(|e| Error::invalid(format!("the tokenizer refuses the pair: {e}")))?;
        let ids = self.checked(encoding.get_ids())?;
        let of_second = |&i: &usize| encoding.token_to_sequence(i) == Some(1);
        let begin = (0..ids.len()).find(of_second).unwrap_or(ids.len());
        let end = (0..ids.len()).rev().find(of_second).map_or(begin, |last| last + 1);
        let types = encoding.get_type_ids().iter().map(|&kind| kind as i32).collect();
        Ok(EncodedPair { ids, types, second: (begin, end) })
    }

    /// Encodes a rendered conversation. Control tokens that lie in `content`, the spans of the request, are
    /// the characters that they are.
    pub fn encode_chat(&self, text: &str, content: &[Span]) -> Result<Vec<i32>> {
        let within = |at: usize| at <= text.len() && text.is_char_boundary(at);
        let mut done = 0;
        for (begin, end) in content {
            if *begin < done || end < begin || !within(*begin) || !within(*end) {
                return Err(Error::invalid("the spans of the conversation are not in order"));
            }
            done = *end;
        }
        // A normalizer can make control tokens of other characters, so words of the request count, too.
        if content.iter().all(|(begin, end)| begin == end) {
            return self.encode(text, false);
        }
        let encoding = self.control.encode(&self.tokenizer, text, content, 0)?;
        self.checked(encoding.get_ids())
    }

    fn checked(&self, ids: &[u32]) -> Result<Vec<i32>> {
        let num_tokens = self.table.num_tokens();
        ids.iter()
            .map(|&id| match i32::try_from(id) {
                Ok(id) if (id as usize) < num_tokens => Ok(id),
                _ => Err(Error::invalid(format!(
                    "tokenizer.json: the tokenizer gives id {id}, its vocabulary has {num_tokens}"
                ))),
            })
            .collect()
    }
}

/// Checks SentencePiece's character maps. A map begins with the size of a table, which its library
/// allocates without a check.
fn check_character_maps(normalizer: &Value) -> Result<()> {
    match normalizer {
        Value::Array(parts) => parts.iter().try_for_each(check_character_maps),
        Value::Object(object) => {
            if let Some(map) = object.get("precompiled_charsmap").and_then(Value::as_str) {
                let bytes = base64::decode(map).unwrap_or_default();
                let size = bytes.first_chunk().map(|head| u32::from_le_bytes(*head) as usize);
                if size.is_none_or(|size| size > bytes.len() - 4) {
                    return Err(Error::invalid("precompiled_charsmap: not a character map"));
                }
            }
            object.values().try_for_each(check_character_maps)
        }
        _ => Ok(()),
    }
}

/// Changes the JSON to what transformers makes of it: special tokens are marked as such. There is no
/// truncation, padding or dropout, since an encoding is a function of its text.
fn adjust(tokenizer: &mut Map<String, Value>, config: &Config) {
    tokenizer.insert("truncation".to_owned(), Value::Null);
    tokenizer.insert("padding".to_owned(), Value::Null);
    if let Some(model) = tokenizer.get_mut("model").and_then(Value::as_object_mut) {
        if model.contains_key("dropout") {
            model.insert("dropout".to_owned(), Value::Null);
        }
    }
    mark_special(tokenizer, config);
    if let Some(processor) = llama_post_processor(tokenizer, config) {
        tokenizer.insert("post_processor".to_owned(), processor);
    }
}

/// Tokens that tokenizer_config.json or special_tokens_map.json call special are special, also
/// where tokenizer.json has them as ordinary ones. Names that the vocabulary lacks are ignored.
fn mark_special(tokenizer: &mut Map<String, Value>, config: &Config) {
    let mut special: Vec<&str> = Vec::new();
    for token in config.special_tokens.values() {
        match token {
            Value::Array(tokens) => special.extend(tokens.iter().filter_map(Value::as_str)),
            token => special.extend(token.as_str()),
        }
    }
    if let Some(Value::Object(added)) = config.config.get("added_tokens_decoder") {
        let added = added.values().filter(|token| token["special"] == true);
        special.extend(added.filter_map(token_content));
    }
    special.sort_unstable();
    special.dedup();

    for content in special {
        let id = id_of(tokenizer, content);
        if let Some(Value::Array(added)) = tokenizer.get_mut("added_tokens") {
            match (added.iter_mut().find(|token| token["content"] == content), id) {
                (Some(Value::Object(token)), _) => {
                    token.insert("special".to_owned(), true.into());
                }
                (None, Some(id)) => added.push(json!({
                    "id": id, "content": content, "single_word": false, "lstrip": false,
                    "rstrip": false, "normalized": false, "special": true})),
                _ => {}
            }
        }
    }
}

/// The id of a token according to the JSON.
fn id_of(tokenizer: &Map<String, Value>, content: &str) -> Option<u64> {
    let added = tokenizer.get("added_tokens").and_then(Value::as_array);
    let found = added.and_then(|a| a.iter().find(|token| token["content"] == content));
    if let Some(token) = found {
        return token["id"].as_u64();
    }
    match tokenizer.get("model")?.get("vocab")? {
        Value::Object(vocab) => vocab.get(content)?.as_u64(),
        Value::Array(pieces) => {
            pieces.iter().position(|piece| piece[0] == content).map(|index| index as u64)
        }
        _ => None,
    }
}

/// Tokenizers of the Llama class add BOS and EOS as tokenizer_config.json says, whatever
/// tokenizer.json has: transformers replaces the post-processor of that class.
fn llama_post_processor(tokenizer: &Map<String, Value>, config: &Config) -> Option<Value> {
    const CLASSES: [&str; 4] =
        ["LlamaTokenizer", "LlamaTokenizerFast", "CodeLlamaTokenizer", "CodeLlamaTokenizerFast"];
    let class = config.config.get("tokenizer_class")?.as_str()?;
    if !CLASSES.contains(&class) {
        return None;
    }
    let adds = |key: &str, default: bool| match config.config.get(key) {
        Some(value) => value.as_bool().unwrap_or(default),
        None => default,
    };
    let mut single = vec![json!({"Sequence": {"id": "A", "type_id": 0}})];
    let mut special_tokens = Map::new();
    let mut special = |name: &str| -> Option<Value> {
        let content = config.special_token(name)?;
        let id = id_of(tokenizer, content)?;
        special_tokens
            .insert(content.to_owned(), json!({"id": content, "ids": [id], "tokens": [content]}));
        Some(json!({"SpecialToken": {"id": content, "type_id": 0}}))
    };
    if adds("add_bos_token", true) {
        single.insert(0, special("bos_token")?);
    }
    if adds("add_eos_token", false) {
        single.push(special("eos_token")?);
    }
    Some(json!({"type": "TemplateProcessing", "single": single, "pair": single,
                "special_tokens": special_tokens}))
}

/// Every token's content by id. Refuses two tokens of the model with one id, since the order of the
/// vocabulary is not defined.
fn tokens_by_id(tokenizer: &HfTokenizer) -> Result<Vec<Option<String>>> {
    let mut tokens: Vec<Option<String>> = Vec::new();
    let mut put = |token: String, id: u32, replace: bool| -> Result<()> {
        let id = id as usize;
        if id >= MAX_VOCAB {
            return Err(Error::invalid(format!("token id {id}, the limit is {}", MAX_VOCAB - 1)));
        }
        if id >= tokens.len() {
            tokens.resize(id + 1, None);
        }
        if tokens[id].is_some() && !replace {
            return Err(Error::invalid(format!("two tokens have the id {id}")));
        }
        tokens[id] = Some(token);
        Ok(())
    };
    for (token, id) in tokenizer.get_vocab(false) {
        put(token, id, false)?;
    }
    for (id, token) in tokenizer.get_added_tokens_decoder() {
        put(token.content, id, true)?;
    }
    Ok(tokens)
}
