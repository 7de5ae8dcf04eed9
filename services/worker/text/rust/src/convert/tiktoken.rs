// SPDX-License-Identifier: Apache-2.0
//! tiktoken's files: lines of a token in base64 and its rank, which is its id. They do not say how a text is
//! divided into words, nor which tokens are special.

use serde_json::{json, Map, Value};

use super::ranks::{self, Words};
use super::{adds, post_processor, unimplemented, with_folder, Added, Beside, Made};
use crate::error::{Error, Result};
use crate::files::token_content;

/// The facts that the code of a family of tokenizers knows beside its file.
struct Family {
    name: &'static str,
    /// Names of the file, and tokenizer_class of tokenizer_config.json.
    files: &'static [&'static str],
    classes: &'static [&'static str],
    pattern: &'static str,
    nfc: bool,
    /// Id of the first special token, and the tokens.
    first_special: usize,
    special: &'static [&'static str],
    /// Special tokens `<|extra_0|>`, … behind those.
    num_extra: usize,
    end: &'static str,
}

const FAMILIES: [Family; 3] = [
    Family {
        name: "Qwen",
        files: &["qwen.tiktoken"],
        classes: &["QWenTokenizer"],
        pattern: concat!(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*",
            r"|\s*[\r\n]+|\s+(?!\S)|\s+"
        ),
        nfc: true,
        first_special: 151_643,
        special: &["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        num_extra: 205,
        end: "<|im_end|>",
    },
    Family {
        name: "Qwen 3.5",
        files: &["qwen3_5.tiktoken", "qwen3_6.tiktoken"],
        classes: &[],
        pattern: concat!(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}",
            r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        ),
        nfc: true,
        first_special: 248_044,
        special: &[
            "<|endoftext|>",
            "<|im_start|>",
            "<|im_end|>",
            "<|object_ref_start|>",
            "<|object_ref_end|>",
            "<|box_start|>",
            "<|box_end|>",
            "<|quad_start|>",
            "<|quad_end|>",
            "<|vision_start|>",
            "<|vision_end|>",
            "<|vision_pad|>",
            "<|image_pad|>",
            "<|video_pad|>",
            "<tool_call>",
            "</tool_call>",
            "<|fim_prefix|>",
            "<|fim_middle|>",
            "<|fim_suffix|>",
            "<|fim_pad|>",
            "<|repo_name|>",
            "<|file_sep|>",
            "<tool_response>",
            "</tool_response>",
            "<think>",
            "</think>",
            "<|audio_start|>",
            "<|audio_end|>",
            "<tts_pad>",
            "<tts_text_bos>",
            "<tts_text_eod>",
            "<tts_text_bos_single>",
            "<|audio_pad|>",
        ],
        num_extra: 0,
        end: "<|im_end|>",
    },
    Family {
        name: "o200k",
        files: &["o200k_base.tiktoken"],
        classes: &[],
        pattern: concat!(
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
            r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
            r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        ),
        nfc: false,
        first_special: 199_999,
        special: &["<|endoftext|>"],
        num_extra: 0,
        end: "<|endoftext|>",
    },
];

/// Tokens of templates, which have text in an answer.
const NOT_HIDDEN: [&str; 6] =
    ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>"];

/// True for bytes that begin with a line of such a file.
pub fn is_ranks(bytes: &[u8]) -> bool {
    const MAX_LINE: usize = 4096;
    let line = bytes[..bytes.len().min(MAX_LINE)].split(|byte| *byte == b'\n').next();
    line.is_some_and(|line| parse_line(line).is_some())
}

fn parse_line(line: &[u8]) -> Option<(Vec<u8>, usize)> {
    let mut words = std::str::from_utf8(line).ok()?.split_ascii_whitespace();
    let token = base64::decode(words.next()?).ok()?;
    let rank = words.next()?.parse().ok()?;
    (words.next().is_none() && !token.is_empty()).then_some((token, rank))
}

pub fn convert(name: &str, bytes: &[u8], beside: &Beside) -> Result<Made> {
    let mut tokens = Vec::new();
    for (index, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        tokens.push(parse_line(line).ok_or_else(|| {
            Error::invalid(format!("line {} is no token in base64 and its rank", index + 1))
        })?);
    }
    let config = beside.config;
    let class = config.get("tokenizer_class").and_then(Value::as_str).unwrap_or("");
    let family = FAMILIES.iter().find(|f| f.files.contains(&name) || f.classes.contains(&class));
    let own_pattern = config.get("pat_str").and_then(Value::as_str);
    let words = match (own_pattern, family) {
        (Some(pattern), family) => Words { pattern, nfc: family.is_some_and(|f| f.nfc) },
        (None, Some(family)) => Words { pattern: family.pattern, nfc: family.nfc },
        (None, None) => {
            let known: Vec<&str> = FAMILIES.iter().map(|f| f.name).collect();
            return Err(unimplemented(format!(
                "the rule that divides text into words is not known: tokenizer_config.json may have it as \
                 pat_str; known are {}",
                known.join(", ")
            )));
        }
    };
    // Where the folder lists its special tokens, the family's are not needed.
    let own = match family {
        Some(family) if !config.contains_key("added_tokens_decoder") => special_tokens(family),
        _ => Vec::new(),
    };
    let special = with_folder(own, beside)?;
    let named = |field: &str| {
        let content = token_content(config.get(field)?)?;
        special.iter().find(|t| t.content == content).map(|t| (t.content.as_str(), t.id))
    };
    let around = post_processor(
        named("bos_token").filter(|_| adds(config, "add_bos_token", false)),
        named("eos_token").filter(|_| adds(config, "add_eos_token", false)),
    );
    let mut defaults = Map::new();
    if let Some(family) = family {
        if special.iter().any(|token| token.content == family.end) {
            defaults.insert("eos_token".to_owned(), json!(family.end));
        }
    }
    Ok(Made { tokenizer: ranks::tokenizer(&tokens, &words, &special, around)?, defaults })
}

fn special_tokens(family: &Family) -> Vec<Added> {
    let extra = (0..family.num_extra).map(|i| format!("<|extra_{i}|>"));
    let names = family.special.iter().map(|name| (*name).to_owned()).chain(extra);
    let token = |(i, name): (usize, String)| {
        let special = !NOT_HIDDEN.contains(&name.as_str());
        Added::new(family.first_special + i, name, special)
    };
    let mut all: Vec<Added> = names.enumerate().map(token).collect();
    if family.name == "o200k" {
        all.push(Added::new(200_018, "<|endofprompt|>", true));
    }
    all
}
