// SPDX-License-Identifier: Apache-2.0
//! tokenizer.model, SentencePiece's BPE and unigram models (sentencepiece_model.proto).
//!
//! Control symbols and the unknown one are special tokens, which are found in a text; SentencePiece itself
//! does not find them. User-defined symbols are tokens wherever they stand, as there.

use std::collections::HashMap;

use serde_json::{json, Map, Value};

use super::cuts::Cuts;
use super::protobuf::{Message, Value as Field};
use super::{adds, post_processor, unimplemented, with_folder, Added, Beside, Made, MAX_VOCAB};
use crate::error::{Error, Result};

/// SentencePiece's sign for a space.
const SPACE: &str = "\u{2581}";
/// Longer pieces have no merges; the longest of real vocabularies are runs of spaces or hyphens.
const MAX_PIECE_BYTES: usize = 1024;
const MAX_WORK: u64 = 1 << 32;

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Normal,
    Unknown,
    Control,
    UserDefined,
    Unused,
    Byte,
}

struct Piece {
    text: String,
    score: f32,
    kind: Kind,
}

#[derive(Default)]
struct Trainer {
    model_type: u64,
    byte_fallback: bool,
    whitespace_as_suffix: bool,
    /// Ids of bos, eos and pad; negative: none. That of unk is the piece of the kind UNKNOWN.
    bos: i32,
    eos: i32,
    pad: i32,
}

struct Normalizer<'a> {
    character_map: &'a [u8],
    add_dummy_prefix: bool,
    remove_extra_whitespaces: bool,
    escape_whitespaces: bool,
}

struct Model<'a> {
    pieces: Vec<Piece>,
    trainer: Trainer,
    normalizer: Normalizer<'a>,
}

const UNIGRAM: u64 = 1;
const BPE: u64 = 2;

impl<'a> Model<'a> {
    fn parse(bytes: &'a [u8]) -> Result<Self> {
        let mut model = Model {
            pieces: Vec::new(),
            trainer: Trainer { model_type: UNIGRAM, bos: 1, eos: 2, pad: -1, ..Trainer::default() },
            normalizer: Normalizer {
                character_map: &[],
                add_dummy_prefix: true,
                remove_extra_whitespaces: true,
                escape_whitespaces: true,
            },
        };
        let mut message = Message::new(bytes);
        while let Some((field, value)) = message.next()? {
            match (field, value) {
                (1, Field::Bytes(piece)) => {
                    if model.pieces.len() >= MAX_VOCAB {
                        return Err(Error::invalid(format!("has more than {MAX_VOCAB} pieces")));
                    }
                    let piece = parse_piece(piece).map_err(|e| {
                        Error::invalid(format!("piece {}: {e}", model.pieces.len()))
                    })?;
                    model.pieces.push(piece);
                }
                (2, Field::Bytes(spec)) => model.trainer.parse(spec)?,
                (3, Field::Bytes(spec)) => model.normalizer.parse(spec)?,
                _ => {}
            }
        }
        if model.pieces.is_empty() {
            return Err(Error::invalid("is no SentencePiece model: it has no pieces"));
        }
        Ok(model)
    }

    /// The id of the piece that stands for what no piece is.
    fn unknown(&self) -> Option<usize> {
        self.pieces.iter().position(|piece| piece.kind == Kind::Unknown)
    }
}

fn parse_piece(bytes: &[u8]) -> Result<Piece> {
    let mut piece = Piece { text: String::new(), score: 0.0, kind: Kind::Normal };
    let mut message = Message::new(bytes);
    while let Some((field, value)) = message.next()? {
        match (field, value) {
            (1, Field::Bytes(text)) => {
                let text = std::str::from_utf8(text).map_err(|_| Error::invalid("is not UTF-8"))?;
                piece.text = text.to_owned();
            }
            (2, Field::Fixed32(bits)) => piece.score = f32::from_bits(bits),
            (3, Field::Varint(kind)) => {
                piece.kind = match kind {
                    1 => Kind::Normal,
                    2 => Kind::Unknown,
                    3 => Kind::Control,
                    4 => Kind::UserDefined,
                    5 => Kind::Unused,
                    6 => Kind::Byte,
                    _ => {
                        return Err(unimplemented(format!(
                            "has the type {kind}, which is not known"
                        )))
                    }
                }
            }
            _ => {}
        }
    }
    if piece.text.is_empty() {
        return Err(Error::invalid("is empty"));
    }
    if !piece.score.is_finite() {
        return Err(Error::invalid("has no finite score"));
    }
    Ok(piece)
}

impl Trainer {
    fn parse(&mut self, bytes: &[u8]) -> Result<()> {
        let mut message = Message::new(bytes);
        while let Some((field, value)) = message.next()? {
            let Field::Varint(value) = value else { continue };
            match field {
                3 => self.model_type = value,
                24 => self.whitespace_as_suffix = value != 0,
                35 => self.byte_fallback = value != 0,
                // int32: negative numbers are those of 64 bits.
                41 => self.bos = value as i32,
                42 => self.eos = value as i32,
                43 => self.pad = value as i32,
                _ => {}
            }
        }
        Ok(())
    }
}

impl<'a> Normalizer<'a> {
    fn parse(&mut self, bytes: &'a [u8]) -> Result<()> {
        let mut message = Message::new(bytes);
        while let Some((field, value)) = message.next()? {
            match (field, value) {
                (2, Field::Bytes(map)) => self.character_map = map,
                (3, Field::Varint(value)) => self.add_dummy_prefix = value != 0,
                (4, Field::Varint(value)) => self.remove_extra_whitespaces = value != 0,
                (5, Field::Varint(value)) => self.escape_whitespaces = value != 0,
                _ => {}
            }
        }
        Ok(())
    }
}

pub fn convert(bytes: &[u8], beside: &Beside) -> Result<Made> {
    let model = Model::parse(bytes)?;
    let trainer = &model.trainer;
    if trainer.whitespace_as_suffix || !model.normalizer.escape_whitespaces {
        return Err(unimplemented("treat_whitespace_as_suffix and escape_whitespaces=false are not supported"));
    }
    if let Some(id) = model.pieces.iter().position(|piece| piece.kind == Kind::Unused) {
        return Err(unimplemented(format!("piece {id} is of the type UNUSED, which is not supported")));
    }
    let mut ids: HashMap<&str, usize> = HashMap::with_capacity(model.pieces.len());
    for (id, piece) in model.pieces.iter().enumerate() {
        if ids.insert(&piece.text, id).is_some() {
            return Err(Error::invalid(format!("the piece {:?} is there twice", piece.text)));
        }
    }
    let own = model.pieces.iter().enumerate().filter_map(|(id, piece)| match piece.kind {
        Kind::Control | Kind::Unknown => Some(Added::new(id, &piece.text, true)),
        Kind::UserDefined => Some(Added::new(id, &piece.text, false)),
        _ => None,
    });
    let added = with_folder(own.collect(), beside)?;
    let mut beyond = model.pieces.len();
    for token in &added {
        let expected = match model.pieces.get(token.id) {
            Some(piece) => piece.text == token.content,
            None => {
                std::mem::replace(&mut beyond, token.id + 1) == token.id
                    && !ids.contains_key(&*token.content)
            }
        };
        if !expected {
            return Err(Error::invalid(format!(
                "the folder's token {:?} cannot have the id {}",
                token.content, token.id
            )));
        }
    }
    let named = |id: i32| {
        let id = usize::try_from(id).ok()?;
        Some((model.pieces.get(id)?.text.as_str(), id))
    };
    let around = post_processor(
        named(trainer.bos).filter(|_| adds(beside.config, "add_bos_token", true)),
        named(trainer.eos).filter(|_| adds(beside.config, "add_eos_token", false)),
    );
    let mut defaults = Map::new();
    for (field, id) in
        [("bos_token", trainer.bos), ("eos_token", trainer.eos), ("pad_token", trainer.pad)]
    {
        if let Some((text, _)) = named(id) {
            defaults.insert(field.to_owned(), json!(text));
        }
    }
    if let Some(unknown) = model.unknown() {
        defaults.insert("unk_token".to_owned(), json!(model.pieces[unknown].text));
    }
    // Where user-defined symbols divide a text, only its first part begins with the dummy prefix. Otherwise
    // each part behind a control symbol does, as where such parts are encoded one by one.
    let has_user_defined = model.pieces.iter().any(|piece| piece.kind == Kind::UserDefined);
    let first_only = !adds(beside.config, "legacy", !has_user_defined);
    let mut tokenizer = Map::new();
    tokenizer.insert("version".to_owned(), json!("1.0"));
    tokenizer.insert("truncation".to_owned(), Value::Null);
    tokenizer.insert("padding".to_owned(), Value::Null);
    tokenizer.insert("added_tokens".to_owned(), added.iter().map(Added::json).collect());
    tokenizer.insert("normalizer".to_owned(), normalizer(&model.normalizer, first_only));
    tokenizer.insert("pre_tokenizer".to_owned(), pre_tokenizer(&model.normalizer, first_only));
    tokenizer.insert("post_processor".to_owned(), around);
    tokenizer.insert("decoder".to_owned(), decoder(&model.normalizer));
    tokenizer.insert("model".to_owned(), model_json(&model, &ids)?);
    Ok(Made { tokenizer, defaults })
}

fn normalizer(spec: &Normalizer, first_only: bool) -> Value {
    let mut steps = Vec::new();
    let replace = |pattern: Value, content: &str| json!({"type": "Replace", "pattern": pattern, "content": content});
    if !spec.character_map.is_empty() {
        steps.push(json!({"type": "Precompiled", "precompiled_charsmap": base64::encode(spec.character_map)}));
    }
    if spec.remove_extra_whitespaces {
        steps.push(replace(json!({"Regex": r"\A +"}), ""));
        steps.push(replace(json!({"Regex": " {2,}"}), " "));
    }
    if spec.add_dummy_prefix && !first_only {
        steps.push(json!({"type": "Prepend", "prepend": SPACE}));
    }
    steps.push(replace(json!({"String": " "}), SPACE));
    if spec.remove_extra_whitespaces {
        // As there, together with the signs for spaces that the text itself has.
        steps.push(replace(json!({"Regex": format!("{SPACE}+\\z")}), ""));
    }
    json!({"type": "Sequence", "normalizers": steps})
}

fn pre_tokenizer(spec: &Normalizer, first_only: bool) -> Value {
    if !spec.add_dummy_prefix || !first_only {
        return Value::Null;
    }
    // One step alone would put nothing in front of a text that begins with a space. Other spaces are written
    // by their sign already.
    let step = |replacement: &str, scheme: &str| json!({"type": "Metaspace", "replacement": replacement, "prepend_scheme": scheme, "split": false});
    json!({"type": "Sequence", "pretokenizers": [step(" ", "first"), step(SPACE, "never")]})
}

fn decoder(spec: &Normalizer) -> Value {
    let mut steps = vec![
        json!({"type": "Replace", "pattern": {"String": SPACE}, "content": " "}),
        json!({"type": "ByteFallback"}),
        json!({"type": "Fuse"}),
    ];
    if spec.add_dummy_prefix {
        steps.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
    }
    json!({"type": "Sequence", "decoders": steps})
}

fn model_json(model: &Model, ids: &HashMap<&str, usize>) -> Result<Value> {
    let unknown = model.unknown();
    match model.trainer.model_type {
        UNIGRAM => {
            let unknown =
                unknown.ok_or_else(|| Error::invalid("has no piece of the type UNKNOWN"))?;
            let vocab: Vec<Value> = model
                .pieces
                .iter()
                .map(|piece| json!([piece.text, f64::from(piece.score)]))
                .collect();
            Ok(json!({"type": "Unigram", "unk_id": unknown, "vocab": vocab,
                      "byte_fallback": model.trainer.byte_fallback}))
        }
        BPE => {
            let vocab: Map<String, Value> = model
                .pieces
                .iter()
                .enumerate()
                .map(|(id, piece)| (piece.text.clone(), json!(id)))
                .collect();
            Ok(
                json!({"type": "BPE", "dropout": null, "unk_token": unknown.map(|id| &model.pieces[id].text),
                      "continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": true,
                      "byte_fallback": model.trainer.byte_fallback, "ignore_merges": false,
                      "vocab": vocab, "merges": merges(model, ids)?}),
            )
        }
        kind => {
            Err(unimplemented(format!("is of the type {kind}; known are 1 (unigram) and 2 (BPE)")))
        }
    }
}

/// SentencePiece joins the neighbours whose joint piece has the best score; merges by rank do the same
/// where each pair that makes a piece has the piece's rank.
fn merges(model: &Model, ids: &HashMap<&str, usize>) -> Result<Vec<Value>> {
    let mergeable =
        |piece: &Piece| piece.kind == Kind::Normal && piece.text.len() <= MAX_PIECE_BYTES;
    let mut ordered: Vec<usize> =
        (0..model.pieces.len()).filter(|id| mergeable(&model.pieces[*id])).collect();
    let work: u64 = ordered.iter().map(|id| (model.pieces[*id].text.len() as u64).pow(2)).sum();
    if work > MAX_WORK {
        return Err(Error::invalid("its pieces are too long"));
    }
    ordered.sort_by(|a, b| model.pieces[*b].score.total_cmp(&model.pieces[*a].score));
    let id_of =
        |part: &str| ids.get(part).copied().filter(|id| model.pieces[*id].kind == Kind::Normal);
    let mut found = Cuts::default();
    for id in ordered {
        let text = model.pieces[id].text.as_str();
        let cuts = text.char_indices().map(|(at, _)| at).skip(1);
        let mut pairs: Vec<_> =
            cuts.filter_map(|at| Some((id_of(&text[..at])?, id_of(&text[at..])?, at))).collect();
        pairs.sort_unstable();
        for (_, _, at) in pairs {
            found.push(id, at, text.len())?;
        }
    }
    let merge = |(id, at): (usize, usize)| {
        let (first, second) = model.pieces[id].text.split_at(at);
        json!([first, second])
    };
    Ok(found.iter().map(merge).collect())
}
