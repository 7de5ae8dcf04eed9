// SPDX-License-Identifier: Apache-2.0
//! The files of a Hugging Face model directory that text depends on, read and parsed.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

use serde_json::{Map, Value};

use crate::convert::{self, Beside, Made};
use crate::error::{Code, Error, Result};

const BOM: &[u8] = b"\xef\xbb\xbf";
const MIB: u64 = 1 << 20;
const MAX_TOKENIZER_BYTES: u64 = 256 * MIB;
const MAX_CONFIG_BYTES: u64 = 64 * MIB;
const MAX_TEMPLATE_BYTES: usize = MIB as usize;

/// The file that the tokenizer is read from.
pub enum Source {
    TokenizerJson(Vec<u8>),
    /// Another file, by its name.
    Other {
        name: String,
        bytes: Vec<u8>,
    },
}

impl Source {
    fn of(name: &str, bytes: Vec<u8>) -> Source {
        match name {
            "tokenizer.json" => Source::TokenizerJson(bytes),
            name => Source::Other { name: name.to_owned(), bytes },
        }
    }
}

/// Contents as they are on disk. An absent file is empty.
pub struct Files {
    pub source: Source,
    pub config: Vec<u8>,
    pub added_tokens: Vec<u8>,
    pub special_tokens_map: Vec<u8>,
    pub chat_template: Vec<u8>,
    pub tool_template: Vec<u8>,
}

impl Files {
    /// `tokenizer_file` is the name of the file that the tokenizer is read from.
    pub fn read(model_dir: &str, tokenizer_file: &str) -> Result<Files> {
        let dir = Path::new(model_dir);
        let path = dir.join(tokenizer_file);
        let bytes = read_file(&path, MAX_TOKENIZER_BYTES)?;
        if bytes.is_empty() {
            let message = format!("{}: no such file, or an empty one", path.display());
            return Err(Error::new(Code::NotFound, message));
        }
        let mut chat_template = read_file(&dir.join("chat_template.jinja"), MAX_CONFIG_BYTES)?;
        if chat_template.is_empty() {
            let json = read_file(&dir.join("chat_template.json"), MAX_CONFIG_BYTES)?;
            let file = parse_object(&json, "chat_template.json")?;
            check_template(&file).map_err(|e| e.in_file("chat_template.json"))?;
            if let Some(template) = template_of(&file) {
                chat_template = template.into_bytes();
            }
        }
        Ok(Files {
            source: Source::of(tokenizer_file, bytes),
            added_tokens: read_file(&dir.join("added_tokens.json"), MAX_CONFIG_BYTES)?,
            config: read_file(&dir.join("tokenizer_config.json"), MAX_CONFIG_BYTES)?,
            special_tokens_map: read_file(&dir.join("special_tokens_map.json"), MAX_CONFIG_BYTES)?,
            chat_template,
            tool_template: read_file(
                &dir.join("additional_chat_templates/tool_use.jinja"),
                MAX_CONFIG_BYTES,
            )?,
        })
    }

    /// The contents of a tokenizer's file and of tokenizer_config.json, of a model that has no others.
    pub fn of_texts(tokenizer_file: &str, tokenizer: &[u8], config: &[u8]) -> Files {
        Files {
            source: Source::of(tokenizer_file, tokenizer.to_vec()),
            config: config.to_vec(),
            added_tokens: Vec::new(),
            special_tokens_map: Vec::new(),
            chat_template: Vec::new(),
            tool_template: Vec::new(),
        }
    }

    /// The tokenizer of another file than tokenizer.json.
    pub fn convert(&self, name: &str, bytes: &[u8], config: &Config) -> Result<Made> {
        let added_tokens = parse_object(&self.added_tokens, "added_tokens.json")?;
        convert::convert(
            name,
            bytes,
            &Beside { config: &config.config, added_tokens: &added_tokens },
        )
    }

    /// Parses all but the tokenizer.
    pub fn config(&self) -> Result<Config> {
        let config = parse_object(&self.config, "tokenizer_config.json")?;
        let special_map = parse_object(&self.special_tokens_map, "special_tokens_map.json")?;
        check_template(&config).map_err(|e| e.in_file("tokenizer_config.json"))?;
        let tool_template =
            template_from(&self.tool_template, || named_template(&config, TOOL_USE))?;
        let template = template_from(&self.chat_template, || template_of(&config))?
            .or_else(|| tool_template.clone());
        let end_tokens = [&config, &special_map]
            .iter()
            .filter_map(|file| Some(token_content(file.get("eos_token")?)?.to_owned()))
            .collect();
        Ok(Config {
            special_tokens: special_tokens(&config, &special_map),
            end_tokens,
            template,
            tool_template,
            config,
        })
    }
}

/// The contents of tokenizer_config.json, special_tokens_map.json and the template files.
pub struct Config {
    pub config: Map<String, Value>,
    /// Variable name (bos_token, additional_special_tokens, …) to a string or an array of strings.
    pub special_tokens: Map<String, Value>,
    /// The tokens that the two files call eos_token.
    pub end_tokens: Vec<String>,
    pub template: Option<String>,
    /// For conversations with tools, where it is another one.
    pub tool_template: Option<String>,
}

impl Config {
    /// Takes special tokens that the files do not name from where the tokenizer has them.
    pub fn add_defaults(&mut self, defaults: Map<String, Value>) {
        for (name, token) in defaults {
            if self.special_tokens.contains_key(&name) {
                continue;
            }
            if name == "eos_token" {
                self.end_tokens.extend(token.as_str().map(str::to_owned));
            }
            self.special_tokens.insert(name, token);
        }
    }

    pub fn special_token(&self, name: &str) -> Option<&str> {
        self.special_tokens.get(name)?.as_str()
    }
}

/// The bytes after a byte order mark of UTF-8; empty where there is no such file.
fn read_file(path: &Path, limit: u64) -> Result<Vec<u8>> {
    let fail = |e: std::io::Error| Error::invalid(format!("{}: {e}", path.display()));
    let file = match File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(fail(e)),
    };
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes).map_err(fail)?;
    if bytes.len() as u64 > limit {
        return Err(Error::invalid(format!(
            "{}: larger than the limit of {limit} bytes",
            path.display()
        )));
    }
    if path.extension().is_some_and(|extension| extension == "json") && bytes.starts_with(BOM) {
        bytes.drain(..BOM.len());
    }
    Ok(bytes)
}

fn parse_object(bytes: &[u8], file: &str) -> Result<Map<String, Value>> {
    if bytes.is_empty() {
        return Ok(Map::new());
    }
    match serde_json::from_slice(bytes) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(Error::invalid("not a JSON object").in_file(file)),
        Err(e) => Err(Error::invalid(format!("not JSON: {e}")).in_file(file)),
    }
}

/// Refuses a chat template that is none: the model would answer no conversations, without a word.
fn check_template(file: &Map<String, Value>) -> Result<()> {
    let is_named = |t: &Value| t["name"].is_string() && t["template"].is_string();
    match file.get("chat_template") {
        None | Some(Value::Null | Value::String(_)) => Ok(()),
        Some(Value::Array(named)) if named.iter().all(is_named) => Ok(()),
        Some(other) => Err(Error::invalid(format!(
            "chat_template is {}; it must be a text, or a list of objects with name and template",
            shown(other)
        ))),
    }
}

/// The beginning of a value's JSON.
fn shown(value: &Value) -> String {
    const MOST: usize = 60;
    let text = value.to_string();
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

/// The template of a file, else what `otherwise` finds.
fn template_from(
    file: &[u8],
    otherwise: impl FnOnce() -> Option<String>,
) -> Result<Option<String>> {
    let template = if file.is_empty() {
        otherwise()
    } else {
        let template =
            std::str::from_utf8(file).map_err(|_| Error::invalid("chat template: not UTF-8"))?;
        Some(template.to_owned())
    };
    match template.as_ref().map(String::len).filter(|size| *size > MAX_TEMPLATE_BYTES) {
        Some(size) => Err(Error::invalid(format!(
            "chat template: has {size} bytes, the limit is {MAX_TEMPLATE_BYTES}"
        ))),
        None => Ok(template),
    }
}

/// The name of the template for conversations with tools.
const TOOL_USE: &str = "tool_use";

/// "chat_template": one string, or a list of {name, template} of which "default" counts. Where the
/// list has no such name, the template for conversations with tools takes those without, too.
fn template_of(config: &Map<String, Value>) -> Option<String> {
    match config.get("chat_template")? {
        Value::String(template) => Some(template.clone()),
        _ => named_template(config, "default").or_else(|| named_template(config, TOOL_USE)),
    }
}

fn named_template(config: &Map<String, Value>, name: &str) -> Option<String> {
    let Value::Array(named) = config.get("chat_template")? else { return None };
    let template = named.iter().find(|t| t["name"] == name)?;
    template["template"].as_str().map(str::to_owned)
}

/// A token is written as a string or as an object with "content".
pub fn token_content(value: &Value) -> Option<&str> {
    value.as_str().or_else(|| value.get("content")?.as_str())
}

const SPECIAL_NAMES: [&str; 7] =
    ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

fn special_tokens(config: &Map<String, Value>, map: &Map<String, Value>) -> Map<String, Value> {
    let mut tokens = Map::new();
    for source in [map, config] {
        for name in SPECIAL_NAMES {
            if let Some(content) = source.get(name).and_then(token_content) {
                tokens.insert(name.to_owned(), content.into());
            }
        }
        if let Some(Value::Array(extra)) = source.get("additional_special_tokens") {
            let extra: Vec<Value> =
                extra.iter().filter_map(token_content).map(Value::from).collect();
            tokens.insert("additional_special_tokens".to_owned(), extra.into());
        }
        // Newer files have further names, each with its token.
        if let Some(Value::Object(extra)) = source.get("extra_special_tokens") {
            for (name, token) in extra {
                if let Some(content) = token_content(token) {
                    tokens.insert(name.clone(), content.into());
                }
            }
        }
    }
    tokens
}
