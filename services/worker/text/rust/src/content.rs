// SPDX-License-Identifier: Apache-2.0
//! Encoding of a rendered conversation, and of a text that is a request's own: control tokens come from the chat
//! template alone. Where the text of a request holds what would be a control token, it is encoded as the characters
//! that it is.

use std::collections::{BTreeSet, HashSet};
use std::ops::Range;

use aho_corasick::AhoCorasick;
use tokenizers::tokenizer::normalizer::Range as Part;
use tokenizers::tokenizer::pre_tokenizer::Split;
use tokenizers::{
    AddedToken, Encoding, Model as _, NormalizedString, Normalizer as _, OffsetReferential,
    OffsetType, PreTokenizedString, PreTokenizer as _, Token, Tokenizer as HfTokenizer,
};

use crate::error::{Error, Result};
use crate::python::text::Span;

/// Most rounds of masking tokens that only appear after normalization.
const MAX_ROUNDS: usize = 8;

/// Finds control tokens in the text of requests.
pub struct ControlTokens {
    /// The texts of all; nothing where there are none.
    texts: Option<AhoCorasick>,
    names: HashSet<String>,
    /// Some are looked for after normalization, where other text can become them.
    normalized: bool,
}

impl ControlTokens {
    /// All special tokens, and those others of the added ones.
    pub fn new(tokenizer: &HfTokenizer, others: &BTreeSet<String>) -> Result<ControlTokens> {
        let added = tokenizer.get_added_vocabulary().get_added_tokens_decoder();
        let is_control =
            |token: &&AddedToken| token.special || others.contains(token.content.as_str());
        let control: Vec<_> =
            added.values().filter(is_control).filter(|token| !token.content.is_empty()).collect();
        let names: HashSet<String> = control.iter().map(|token| token.content.clone()).collect();
        let texts = match names.is_empty() {
            true => None,
            false => Some(AhoCorasick::new(&names).map_err(|e| {
                Error::invalid(format!("its special tokens are too many to be found: {e}"))
            })?),
        };
        let normalized = control.iter().any(|token| token.normalized);
        Ok(ControlTokens { texts, names, normalized })
    }

    fn has(&self, token: &Token) -> bool {
        self.names.contains(&token.value)
    }

    /// The text with other characters, of as many bytes, where `content` holds control tokens; nothing where
    /// it holds none. `content` are ascending spans.
    fn mask(
        &self,
        tokenizer: &HfTokenizer,
        text: &str,
        content: &[Span],
    ) -> Result<Option<String>> {
        let Some(texts) = &self.texts else { return Ok(None) };
        let mut masked = text.as_bytes().to_vec();
        let mut any = false;
        let mut hide = |range: Range<usize>, masked: &mut Vec<u8>| {
            let first = content.partition_point(|span| span.1 <= range.start);
            let mut hidden = false;
            for span in content[first..].iter().take_while(|span| span.0 < range.end) {
                for byte in &mut masked[span.0.max(range.start)..span.1.min(range.end)] {
                    hidden |= *byte != MASK;
                    *byte = MASK;
                }
            }
            any |= hidden;
            hidden
        };
        for found in texts.find_overlapping_iter(text) {
            hide(found.range(), &mut masked);
        }
        let as_text = |bytes: &[u8]| {
            String::from_utf8(bytes.to_vec())
                .map_err(|_| Error::invalid("a part of a request ends within a character"))
        };
        let mut rounds = 0;
        while self.normalized {
            let current = as_text(&masked)?;
            let mut hidden = false;
            for (range, token) in added_tokens(tokenizer, &current) {
                if self.has(&token) {
                    hidden |= hide(range, &mut masked);
                }
            }
            if !hidden {
                break;
            }
            rounds += 1;
            if rounds > MAX_ROUNDS {
                return Err(Error::invalid("the text of a request makes control tokens"));
            }
        }
        match any {
            true => as_text(&masked).map(Some),
            false => Ok(None),
        }
    }

    /// The tokens of `text`, all of this type, without those that a tokenizer puts around a text. Where `content`
    /// holds no control tokens they are those of the library.
    pub fn encode(
        &self,
        tokenizer: &HfTokenizer,
        text: &str,
        content: &[Span],
        kind: u32,
    ) -> Result<Encoding> {
        let parts = match self.mask(tokenizer, text, content)? {
            Some(masked) => split_at(tokenizer, text, &added_tokens(tokenizer, &masked)),
            None => Ok(tokenizer
                .get_added_vocabulary()
                .extract_and_normalize(tokenizer.get_normalizer(), text)),
        };
        parts
            .and_then(|parts| self.encoding_of(tokenizer, parts, kind))
            .map_err(|e| Error::invalid(format!("the tokenizer refuses the text: {e}")))
    }

    /// The tokens of parts that are normalized.
    fn encoding_of(
        &self,
        tokenizer: &HfTokenizer,
        mut parts: PreTokenizedString,
        kind: u32,
    ) -> tokenizers::Result<Encoding> {
        if let Some(pre_tokenizer) = tokenizer.get_pre_tokenizer() {
            pre_tokenizer.pre_tokenize(&mut parts)?;
        }
        parts.tokenize(|part| self.tokens_of(tokenizer, part.get()))?;
        parts.into_encoding(None, kind, OffsetType::None)
    }

    /// The model's tokens of a word. A word that the vocabulary itself has as a control token is cut into its
    /// characters.
    fn tokens_of(&self, tokenizer: &HfTokenizer, word: &str) -> tokenizers::Result<Vec<Token>> {
        let model = tokenizer.get_model();
        let makes_control = |tokens: &[Token], word: &str| {
            tokens.iter().any(|token| self.has(token) && word.contains(&token.value))
        };
        let tokens = model.tokenize(word)?;
        if !makes_control(&tokens, word) {
            return Ok(tokens);
        }
        let mut cut = Vec::new();
        for c in word.chars() {
            let c = c.to_string();
            let tokens = model.tokenize(&c)?;
            if makes_control(&tokens, &c) {
                return Err("a character of the request is a control token".into());
            }
            cut.extend(tokens);
        }
        Ok(cut)
    }
}

/// A control character that no token is expected to have; it is only looked at, never encoded.
const MASK: u8 = 1;

/// The added tokens in a text and the bytes that they take, with white space around where they strip it.
fn added_tokens(tokenizer: &HfTokenizer, text: &str) -> Vec<(Range<usize>, Token)> {
    let parts =
        tokenizer.get_added_vocabulary().extract_and_normalize(tokenizer.get_normalizer(), text);
    parts
        .get_splits(OffsetReferential::Original, OffsetType::Byte)
        .into_iter()
        .filter_map(|(_, (begin, end), tokens)| match tokens.as_deref() {
            Some([token]) => Some((begin..end, token.clone())),
            _ => None,
        })
        .collect()
}

/// The tokens that were found in a text, and the text between them, normalized.
fn split_at(
    tokenizer: &HfTokenizer,
    text: &str,
    found: &[(Range<usize>, Token)],
) -> tokenizers::Result<PreTokenizedString> {
    let mut parts = PreTokenizedString::from(text);
    parts.split(|_, whole| split(&whole, found, text.len()))?;
    if let Some(normalizer) = tokenizer.get_normalizer() {
        parts.normalize(|part| normalizer.normalize(part))?;
    }
    Ok(parts)
}

/// The tokens that were found, and the text between them.
fn split(
    whole: &NormalizedString,
    found: &[(Range<usize>, Token)],
    length: usize,
) -> tokenizers::Result<Vec<Split>> {
    let slice = |range: Range<usize>| {
        whole.slice(Part::Original(range)).ok_or("a token within a character".into())
    };
    let mut parts: Vec<Split> = Vec::with_capacity(2 * found.len() + 1);
    let mut done = 0;
    for (range, token) in found {
        if done < range.start {
            let part: tokenizers::Result<NormalizedString> = slice(done..range.start);
            parts.push(part?.into());
        }
        let part: tokenizers::Result<NormalizedString> = slice(range.clone());
        parts.push((part?, Some(vec![token.clone()])).into());
        done = range.end;
    }
    if done < length {
        let part: tokenizers::Result<NormalizedString> = slice(done..length);
        parts.push(part?.into());
    }
    Ok(parts)
}
