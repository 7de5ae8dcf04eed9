// SPDX-License-Identifier: Apache-2.0
//! The bytes of every token in an answer that continues a prompt.
//!
//! Hugging Face decodes a whole list of tokens at once. Here a token has bytes of its own, those
//! that it adds in the middle of a text: never the first, never the last. Decoders are therefore not
//! applied at the start of a text (where some strip a space) or at its end, and the text of an answer
//! is a function of its ids so far. Bytes become characters later, in C++.

use tokenizers::decoders::DecoderWrapper;
use tokenizers::{Decoder as _, Tokenizer as HfTokenizer};

use crate::error::{Error, Result};

/// All tokens' bytes together are at most this many.
const MAX_TABLE_BYTES: usize = 512 << 20;
/// One token's replaced text is at most this many bytes.
const MAX_TOKEN_BYTES: usize = 1 << 20;

pub struct TokenTable {
    pub bytes: Vec<u8>,
    /// Token `id` ends before bytes[ends[id]] and begins where the one before it ends.
    pub ends: Vec<u32>,
    pub is_special: Vec<u8>,
    /// A token equal to its predecessor adds nothing.
    pub collapses_repeats: bool,
    /// Tokens are written in GPT-2's characters for bytes.
    pub is_byte_level: bool,
}

impl TokenTable {
    pub fn new(tokenizer: &HfTokenizer, tokens: Vec<Option<String>>) -> Result<TokenTable> {
        let steps = Steps::new(tokenizer.get_decoder());
        let added = tokenizer.get_added_vocabulary();
        let mut table = TokenTable {
            bytes: Vec::new(),
            ends: Vec::with_capacity(tokens.len()),
            is_special: Vec::with_capacity(tokens.len()),
            is_byte_level: steps.0.iter().any(|step| matches!(step, Step::ByteLevel)),
            collapses_repeats: steps.0.iter().any(|step| matches!(step, Step::Ctc { .. })),
        };
        for token in tokens {
            let mut special = false;
            if let Some(token) = token {
                special = added.is_special_token(&token);
                table.bytes.extend(steps.apply(token)?);
            }
            if table.bytes.len() > MAX_TABLE_BYTES {
                return Err(Error::invalid(format!(
                    "its tokens have more than {MAX_TABLE_BYTES} bytes"
                )));
            }
            table.ends.push(table.bytes.len() as u32);
            table.is_special.push(special.into());
        }
        Ok(table)
    }

    pub fn num_tokens(&self) -> usize {
        self.ends.len()
    }

    pub fn bytes_of(&self, id: usize) -> &[u8] {
        let begin = if id == 0 { 0 } else { self.ends[id - 1] as usize };
        &self.bytes[begin..self.ends[id] as usize]
    }

    /// True for a token of white space alone, and for one without bytes.
    pub fn is_space(&self, id: usize) -> bool {
        self.bytes_of(id).iter().all(u8::is_ascii_whitespace)
    }
}

enum Step<'a> {
    /// GPT-2's bytes written as printable characters.
    ByteLevel,
    /// <0xE2> is the byte E2.
    ByteFallback,
    /// No decoder at all: words with a space between them.
    SpaceBetween,
    Ctc {
        pad: &'a str,
        delimiter: &'a str,
        cleanup: bool,
    },
    /// A decoder that turns each token into a text by itself.
    Text(&'a DecoderWrapper),
}

struct Steps<'a>(Vec<Step<'a>>);

impl<'a> Steps<'a> {
    fn new(decoder: Option<&'a DecoderWrapper>) -> Self {
        let mut steps = Steps(Vec::new());
        match decoder {
            Some(decoder) => steps.add(decoder, &mut false),
            None => steps.0.push(Step::SpaceBetween),
        }
        steps
    }

    /// After `fused` a decoder sees the whole text as one token.
    fn add(&mut self, decoder: &'a DecoderWrapper, fused: &mut bool) {
        match decoder {
            DecoderWrapper::Sequence(sequence) => {
                sequence.get_decoders().iter().for_each(|decoder| self.add(decoder, fused));
            }
            DecoderWrapper::Fuse(_) => *fused = true,
            // This concerns the start and the end of a text, which a token is not.
            DecoderWrapper::Strip(_) if *fused => {}
            DecoderWrapper::ByteLevel(_) => {
                self.0.push(Step::ByteLevel);
                *fused = true;
            }
            DecoderWrapper::ByteFallback(_) => self.0.push(Step::ByteFallback),
            DecoderWrapper::CTC(ctc) => self.0.push(Step::Ctc {
                pad: &ctc.pad_token,
                delimiter: &ctc.word_delimiter_token,
                cleanup: ctc.cleanup,
            }),
            DecoderWrapper::BPE(_)
            | DecoderWrapper::WordPiece(_)
            | DecoderWrapper::Metaspace(_)
            | DecoderWrapper::Replace(_)
            | DecoderWrapper::Strip(_) => self.0.push(Step::Text(decoder)),
        }
    }

    fn apply(&self, token: String) -> Result<Vec<u8>> {
        let mut text = token;
        for (index, step) in self.0.iter().enumerate() {
            match step {
                Step::Text(decoder) => text = decode_in_the_middle(decoder, text)?,
                Step::SpaceBetween => text.insert(0, ' '),
                Step::Ctc { pad, delimiter, cleanup } => {
                    text = text.replace(pad, "");
                    if *cleanup {
                        text =
                            tokenizers::decoders::wordpiece::cleanup(&text).replace(delimiter, " ");
                    }
                }
                Step::ByteLevel | Step::ByteFallback => {
                    let bytes = match step {
                        Step::ByteLevel => bytes_of_byte_level(&text),
                        _ => byte_of_fallback(&text).map(|byte| vec![byte]),
                    };
                    if let Some(bytes) = bytes {
                        // Later steps read characters; half a character passes them by.
                        match String::from_utf8(bytes) {
                            Ok(whole) if index + 1 < self.0.len() => text = whole,
                            Ok(whole) => return Ok(whole.into_bytes()),
                            Err(half) => return Ok(half.into_bytes()),
                        }
                    }
                }
            }
        }
        Ok(text.into_bytes())
    }
}

fn decode_in_the_middle(decoder: &DecoderWrapper, token: String) -> Result<String> {
    if let DecoderWrapper::Replace(replace) = decoder {
        if (token.len() + 1).saturating_mul(replace.content.len() + 1) > MAX_TOKEN_BYTES {
            return Err(Error::invalid(format!(
                "its decoder may turn one token into more than {MAX_TOKEN_BYTES} bytes"
            )));
        }
    }
    let decoded = decoder
        .decode_chain(vec![".".to_owned(), token, ".".to_owned()])
        .map_err(|e| Error::invalid(format!("its decoder fails: {e}")))?;
    match decoded.into_iter().nth(1) {
        Some(text) => Ok(text),
        None => Err(Error::invalid("its decoder loses tokens")),
    }
}

fn byte_of_fallback(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    if digits.len() != 2 {
        return None;
    }
    u8::from_str_radix(digits, 16).ok()
}

/// None where a character stands for no byte: then the token is text as it is.
fn bytes_of_byte_level(token: &str) -> Option<Vec<u8>> {
    token.chars().map(byte_of_char).collect()
}

/// GPT-2's map: printable Latin-1 characters stand for themselves, the other 68 bytes for
/// U+0100, U+0101, … in their order.
fn byte_of_char(c: char) -> Option<u8> {
    match c as u32 {
        code @ (0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff) => Some(code as u8),
        code @ 0x100..=0x120 => Some((code - 0x100) as u8),
        code @ 0x121..=0x142 => Some((code - 0x121 + 0x7f) as u8),
        0x143 => Some(0xad),
        _ => None,
    }
}
