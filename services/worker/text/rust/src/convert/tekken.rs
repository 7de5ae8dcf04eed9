// SPDX-License-Identifier: Apache-2.0
//! tekken.json, Mistral's tokenizers: byte-level BPE by ranks, behind the special tokens.

use serde::Deserialize;
use serde_json::{json, Map};

use super::ranks::{self, Words};
use super::{adds, post_processor, with_folder, Added, Beside, Made, MAX_VOCAB};
use crate::error::{Error, Result};

#[derive(Deserialize)]
struct Tekken {
    config: Config,
    vocab: Vec<Token>,
    special_tokens: Option<Vec<Special>>,
}

#[derive(Deserialize)]
struct Config {
    pattern: String,
    default_vocab_size: usize,
    default_num_special_tokens: usize,
}

#[derive(Deserialize)]
struct Token {
    rank: usize,
    token_bytes: String,
}

#[derive(Deserialize)]
struct Special {
    rank: usize,
    token_str: String,
    /// Such tokens are found in a text, but are not hidden in an answer.
    #[serde(default = "yes")]
    is_control: bool,
}

fn yes() -> bool {
    true
}

/// The special tokens of files that do not list theirs, which are those up to version 7.
const OLD_SPECIAL: [&str; 20] = [
    "<unk>",
    "<s>",
    "</s>",
    "[INST]",
    "[/INST]",
    "[AVAILABLE_TOOLS]",
    "[/AVAILABLE_TOOLS]",
    "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]",
    "[TOOL_CALLS]",
    "[IMG]",
    "<pad>",
    "[IMG_BREAK]",
    "[IMG_END]",
    "[PREFIX]",
    "[MIDDLE]",
    "[SUFFIX]",
    "[SYSTEM_PROMPT]",
    "[/SYSTEM_PROMPT]",
    "[TOOL_CONTENT]",
];

/// Real files have a thousand; each takes memory whether it is listed or not.
const MAX_SPECIAL: usize = 1 << 16;

pub fn convert(bytes: &[u8], beside: &Beside) -> Result<Made> {
    let file: Tekken = serde_json::from_slice(bytes)
        .map_err(|e| Error::invalid(format!("is not what it should be: {e}")))?;
    let size = file.config.default_vocab_size;
    let num_special = file.config.default_num_special_tokens;
    if size > MAX_VOCAB
        || num_special > MAX_SPECIAL
        || num_special > size
        || size - num_special > file.vocab.len()
    {
        return Err(Error::invalid(format!(
            "has {} tokens, default_vocab_size {size} and default_num_special_tokens {num_special}",
            file.vocab.len()
        )));
    }
    // As for the original, the file may list more than its default size: the rest is not read.
    let mut tokens = Vec::with_capacity(size - num_special);
    for (index, token) in file.vocab.into_iter().take(size - num_special).enumerate() {
        if token.rank != index {
            return Err(Error::invalid(format!("vocab[{index}] has the rank {}", token.rank)));
        }
        let bytes = base64::decode(&token.token_bytes)
            .map_err(|_| Error::invalid(format!("vocab[{index}].token_bytes is not base64")))?;
        tokens.push((bytes, num_special + index));
    }
    let special = with_folder(special_tokens(file.special_tokens, num_special)?, beside)?;
    let find = |content: &str| special.iter().find(|token| token.content == content);
    let bos = find("<s>").map(|token| ("<s>", token.id));
    let eos = find("</s>").map(|token| ("</s>", token.id));
    let around = post_processor(
        bos.filter(|_| adds(beside.config, "add_bos_token", true)),
        eos.filter(|_| adds(beside.config, "add_eos_token", false)),
    );
    let mut defaults = Map::new();
    for (field, content) in [
        ("bos_token", "<s>"),
        ("eos_token", "</s>"),
        ("unk_token", "<unk>"),
        ("pad_token", "<pad>"),
    ] {
        if find(content).is_some() {
            defaults.insert(field.to_owned(), json!(content));
        }
    }
    let words = Words { pattern: &file.config.pattern, nfc: false };
    Ok(Made { tokenizer: ranks::tokenizer(&tokens, &words, &special, around)?, defaults })
}

/// All ids below `count`: those of the list, and fillers as Mistral names them.
fn special_tokens(listed: Option<Vec<Special>>, count: usize) -> Result<Vec<Added>> {
    let old = |(rank, token): (usize, &&str)| Added::new(rank, *token, true);
    let listed: Vec<Added> = match listed {
        Some(listed) => {
            listed.into_iter().map(|s| Added::new(s.rank, s.token_str, s.is_control)).collect()
        }
        None => OLD_SPECIAL.iter().enumerate().map(old).collect(),
    };
    let mut all: Vec<Added> =
        (0..count).map(|id| Added::new(id, format!("<SPECIAL_{id}>"), true)).collect();
    let num_listed = listed.len();
    for (index, token) in listed.into_iter().enumerate() {
        if token.id != index || index >= count {
            return Err(Error::invalid(format!(
                "special_tokens[{index}] has the rank {}, of {num_listed} with {count} places",
                token.id
            )));
        }
        all[index] = token;
    }
    Ok(all)
}
