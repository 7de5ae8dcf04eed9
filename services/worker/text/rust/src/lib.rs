// SPDX-License-Identifier: Apache-2.0
//! The functions of continuo_text.h.
#![deny(warnings)]

mod content;
mod control;
mod convert;
mod coverage;
mod decoder;
mod digest;
mod ends;
mod error;
mod files;
mod forms;
mod grammar;
mod info;
mod jinja;
mod python;
mod template;
mod tokenizer;

use std::cell::RefCell;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::{Once, OnceLock};

use error::{Error, Result};
use files::{Files, Source};
use grammar::Environment;
use serde_json::{Map, Value};
use template::{ChatRequest, ChatTemplate};
use tokenizer::Tokenizer;

pub struct ContinuoText {
    tokenizer: Tokenizer,
    template: ChatTemplate,
    info: Map<String, Value>,
    /// Lines that tell what of the files is not used, or loses text.
    warnings: String,
    /// Made for the first grammar.
    grammars: OnceLock<Result<Environment>>,
}

impl ContinuoText {
    fn new(files: &Files) -> Result<Self> {
        let mut config = files.config()?;
        let mut tokenizer = match &files.source {
            Source::TokenizerJson(json) => {
                Tokenizer::new(json, &config).map_err(|e| e.in_file("tokenizer.json"))?
            }
            Source::Other { name, bytes } => {
                let made = files.convert(name, bytes, &config)?;
                config.add_defaults(made.defaults);
                Tokenizer::made(made.tokenizer, &config).map_err(|e| e.in_file(name))?
            }
        };
        let info = info::tokenizer_info(&config);
        let mut template = ChatTemplate::new(config)?;
        if template.exists() {
            let control = control::plain_control_tokens(&tokenizer, &template);
            template.set_answer_tags(&control::answer_tags(&control));
            tokenizer.add_control_tokens(&control)?;
        }
        let unknown = tokenizer.unknown_ends.iter().map(|token| {
            format!(
                "eos_token is {token:?}, which is no token of the vocabulary, and ends no answer"
            )
        });
        let warnings = unknown.chain(template.warnings()).collect::<Vec<_>>().join("\n");
        Ok(ContinuoText { tokenizer, template, info, warnings, grammars: OnceLock::new() })
    }

    fn grammars(&self) -> Result<&Environment> {
        let made = self.grammars.get_or_init(|| Environment::new(&self.tokenizer.table));
        made.as_ref().map_err(Error::clone)
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Slice {
    data: *const u8,
    size: usize,
}

impl Slice {
    fn of(bytes: &[u8]) -> Slice {
        Slice { data: bytes.as_ptr(), size: bytes.len() }
    }

    /// # Safety
    /// The caller's slice is readable for as long as the result is used.
    unsafe fn bytes<'a>(self) -> &'a [u8] {
        if self.size == 0 {
            return &[];
        }
        std::slice::from_raw_parts(self.data, self.size)
    }

    /// # Safety
    /// See `bytes`.
    unsafe fn utf8<'a>(self, what: &str) -> Result<&'a str> {
        std::str::from_utf8(self.bytes()).map_err(|e| {
            Error::invalid(format!("{what} is not UTF-8 (at byte {})", e.valid_up_to()))
        })
    }
}

#[repr(C)]
pub struct OutString {
    data: *mut u8,
    size: usize,
}

impl OutString {
    fn of(text: &str) -> OutString {
        let bytes = Box::leak(text.as_bytes().to_vec().into_boxed_slice());
        OutString { data: bytes.as_mut_ptr(), size: bytes.len() }
    }
}

#[repr(C)]
pub struct OutIds {
    data: *mut i32,
    size: usize,
}

impl OutIds {
    fn of(ids: Vec<i32>) -> OutIds {
        let ids = Box::leak(ids.into_boxed_slice());
        OutIds { data: ids.as_mut_ptr(), size: ids.len() }
    }
}

#[repr(C)]
pub struct Span {
    begin: usize,
    end: usize,
}

#[repr(C)]
pub struct OutSpans {
    data: *mut Span,
    size: usize,
}

#[repr(C)]
pub struct OutTokenTable {
    bytes: *const u8,
    ends: *const u32,
    is_special: *const u8,
    num_tokens: usize,
    collapses_repeats: i32,
    has_chat_template: i32,
    keeps_bytes: i32,
}

thread_local! {
    static LAST_ERROR: RefCell<(i32, String)> = const { RefCell::new((0, String::new())) };
}

/// Runs `work`; a panic in it becomes an error. Panics come from other crates (regular expressions at
/// their limits, unchecked character maps). The only locks that they poison belong to a cache, which
/// is then not used.
fn guard<T>(what: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    static QUIET: Once = Once::new();
    // A panic's message may quote the text at hand, which belongs in no log.
    QUIET.call_once(|| std::panic::set_hook(Box::new(|_| {})));
    let result = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        Err(Error::invalid(format!("{what} is beyond the limits of a library that reads it")))
    });
    if let Err(error) = &result {
        LAST_ERROR.set((error.code as i32, error.message.clone()));
    }
    result
}

fn code_of(result: Result<()>) -> i32 {
    result.map_or_else(|error| error.code as i32, |()| 0)
}

fn handle_of(result: Result<ContinuoText>) -> *mut ContinuoText {
    result.map_or(std::ptr::null_mut(), |text| Box::into_raw(Box::new(text)))
}

#[no_mangle]
pub extern "C" fn continuo_text_error_code() -> i32 {
    LAST_ERROR.with_borrow(|(code, _)| *code)
}

#[no_mangle]
pub extern "C" fn continuo_text_error() -> Slice {
    LAST_ERROR.with_borrow(|(_, message)| Slice::of(message.as_bytes()))
}

/// # Safety
/// The arguments of this and the functions below are as continuo_text.h says.
#[no_mangle]
pub unsafe extern "C" fn continuo_text_open(
    model_dir: Slice,
    tokenizer_file: Slice,
) -> *mut ContinuoText {
    let file = tokenizer_file.utf8("the tokenizer's file");
    handle_of(guard(file.as_ref().map_or("the tokenizer", |file| file), || {
        let dir = model_dir.utf8("the model's path")?;
        let file = file.as_ref().map_err(Error::clone)?;
        ContinuoText::new(&Files::read(dir, file)?).map_err(|e| e.in_file(dir))
    }))
}

/// # Safety
/// See `continuo_text_open`.
#[no_mangle]
pub unsafe extern "C" fn continuo_text_open_texts(
    name: Slice,
    tokenizer_file: Slice,
    tokenizer: Slice,
    config: Slice,
) -> *mut ContinuoText {
    let file = tokenizer_file.utf8("the tokenizer's file");
    handle_of(guard(file.as_ref().map_or("the tokenizer", |file| file), || {
        let name = name.utf8("the model's path")?;
        let file = file.as_ref().map_err(Error::clone)?;
        let files = Files::of_texts(file, tokenizer.bytes(), config.bytes());
        ContinuoText::new(&files).map_err(|e| e.in_file(name))
    }))
}

/// # Safety
/// See `continuo_text_open`.
#[no_mangle]
pub unsafe extern "C" fn continuo_text_free(text: *mut ContinuoText) {
    if !text.is_null() {
        drop(Box::from_raw(text));
    }
}

/// # Safety
/// See `continuo_text_open`.
#[no_mangle]
pub unsafe extern "C" fn continuo_text_token_table(
    text: *const ContinuoText,
    out: *mut OutTokenTable,
) {
    let table = &(*text).tokenizer.table;
    *out = OutTokenTable {
        bytes: table.bytes.as_ptr(),
        ends: table.ends.as_ptr(),
        is_special: table.is_special.as_ptr(),
        num_tokens: table.num_tokens(),
        collapses_repeats: table.collapses_repeats.into(),
        has_chat_template: (*text).template.exists().into(),
        keeps_bytes: (*text).tokenizer.keeps_bytes.into(),
    };
}

/// # Safety
/// See `continuo_text_open`.
#[no_mangle]
pub unsafe extern "C" fn continuo_text_tokenizer_digest(text: *const ContinuoText) -> Slice {
    Slice::of((*text).tokenizer.digest.as_bytes())
}

/// # Safety
/// See `continuo_text_open`.
#[no_mangle]
pub unsafe extern "C" fn continuo_text_template_digest(text: *const ContinuoText) -> Slice {
    Slice::of((*text).template.digest.as_bytes())
}

/// # Safety
/// See `continuo_text_open`.
#[no_mangle]
pub unsafe extern "C" fn continuo_text_tokenizer_kind(text: *const ContinuoText) -> Slice {
    Slice::of((*text).tokenizer.kind().as_bytes())
}

/// # Safety
/// See `continuo_text_open`.
#[no_mangle]
pub unsafe extern "C" fn continuo_text_chat_template(text: *const ContinuoText) -> Slice {
    Slice::of((*text).template.source.as_bytes())
}

/// # Safety
/// See `continuo_text_open`.
#[no_mangle]
pub unsafe extern "C" fn continuo_text_response_template(text: *const ContinuoText) -> Slice {
    Slice::of((*text).template.response_template.as_bytes())
}

/// # Safety
/// See `continuo_text_open`.
#[no_mangle]
pub unsafe extern "C" fn continuo_text_warnings(text: *const ContinuoText) -> Slice {
    Slice::of((*text).warnings.as_bytes())
}

/// # Safety
/// See `continuo_text_open`.
#[no_mangle]
pub unsafe extern "C" fn continuo_text_end_ids(
    text: *const ContinuoText,
    known: *const i32,
    num_known: usize,
    out: *mut OutIds,
) -> i32 {
    code_of(guard("the chat template", || {
        let text = &*text;
        let known = if num_known == 0 { &[] } else { std::slice::from_raw_parts(known, num_known) };
        *out = OutIds::of(ends::end_ids(&text.tokenizer, &text.template, known));
        Ok(())
    }))
}

/// # Safety
/// See `continuo_text_open`.
#[no_mangle]
pub unsafe extern "C" fn continuo_text_token_name(
    text: *const ContinuoText,
    id: i32,
    out: *mut OutString,
) -> i32 {
    code_of(guard("the token", || {
        *out = OutString::of(&(*text).tokenizer.name_of(id).unwrap_or_default());
        Ok(())
    }))
}

/// # Safety
/// See `continuo_text_open`.
#[no_mangle]
pub unsafe extern "C" fn continuo_text_tokenizer_info(
    text: *const ContinuoText,
    end_id: i32,
    out: *mut OutString,
) -> i32 {
    code_of(guard("tokenizer_config.json", || {
        let end = (*text).tokenizer.name_of(end_id);
        *out = OutString::of(&info::json_of(&(*text).info, end));
        Ok(())
    }))
}

/// # Safety
/// See `continuo_text_open`.
#[no_mangle]
pub unsafe extern "C" fn continuo_text_encode(
    text: *const ContinuoText,
    utf8: Slice,
    add_special: i32,
    out: *mut OutIds,
) -> i32 {
    code_of(guard("the text", || {
        let ids = (*text).tokenizer.encode(utf8.utf8("the text")?, add_special != 0)?;
        *out = OutIds::of(ids);
        Ok(())
    }))
}

/// # Safety
/// See `continuo_text_open`.
#[no_mangle]
pub unsafe extern "C" fn continuo_text_encode_pair(
    text: *const ContinuoText,
    first: Slice,
    second: Slice,
    parse_special: i32,
    out: *mut OutIds,
    types: *mut OutIds,
    second_tokens: *mut Span,
) -> i32 {
    code_of(guard("the pair", || {
        let (first, second) = (first.utf8("the text")?, second.utf8("the text")?);
        let pair = (*text).tokenizer.encode_pair(first, second, parse_special != 0)?;
        *out = OutIds::of(pair.ids);
        *types = OutIds::of(pair.types);
        *second_tokens = Span { begin: pair.second.0, end: pair.second.1 };
        Ok(())
    }))
}

/// # Safety
/// See `continuo_text_open`.
#[no_mangle]
pub unsafe extern "C" fn continuo_text_render_chat(
    text: *const ContinuoText,
    request_json: Slice,
    out: *mut OutString,
    content: *mut OutSpans,
) -> i32 {
    code_of(guard("the conversation", || {
        let request = ChatRequest::parse(request_json.utf8("the conversation")?)?;
        let rendered = (*text).template.render(request)?;
        *out = OutString::of(rendered.as_str());
        if !content.is_null() {
            let spans = rendered.spans().into_iter().map(|(begin, end)| Span { begin, end });
            let spans = Box::leak(spans.collect::<Vec<Span>>().into_boxed_slice());
            *content = OutSpans { data: spans.as_mut_ptr(), size: spans.len() };
        }
        Ok(())
    }))
}

/// # Safety
/// See `continuo_text_open`.
#[no_mangle]
pub unsafe extern "C" fn continuo_text_encode_chat(
    text: *const ContinuoText,
    utf8: Slice,
    content: OutSpans,
    out: *mut OutIds,
) -> i32 {
    code_of(guard("the conversation", || {
        let spans = match content.size {
            0 => &[],
            size => std::slice::from_raw_parts(content.data, size),
        };
        let spans: Vec<(usize, usize)> = spans.iter().map(|span| (span.begin, span.end)).collect();
        *out = OutIds::of((*text).tokenizer.encode_chat(utf8.utf8("the conversation")?, &spans)?);
        Ok(())
    }))
}

/// # Safety
/// See `continuo_text_open`.
#[no_mangle]
pub unsafe extern "C" fn continuo_text_render_template(
    chat_template: Slice,
    request_json: Slice,
    out: *mut OutString,
) -> i32 {
    code_of(guard("the conversation", || {
        let template = ChatTemplate::of_text(chat_template.utf8("the chat template")?)?;
        let request = ChatRequest::parse(request_json.utf8("the conversation")?)?;
        *out = OutString::of(template.render(request)?.as_str());
        Ok(())
    }))
}

/// # Safety
/// `string` is one that a function above gave, and is used no more.
#[no_mangle]
pub unsafe extern "C" fn continuo_string_free(string: OutString) {
    if !string.data.is_null() {
        drop(Box::from_raw(std::ptr::slice_from_raw_parts_mut(string.data, string.size)));
    }
}

/// # Safety
/// See `continuo_string_free`.
#[no_mangle]
pub unsafe extern "C" fn continuo_ids_free(ids: OutIds) {
    if !ids.data.is_null() {
        drop(Box::from_raw(std::ptr::slice_from_raw_parts_mut(ids.data, ids.size)));
    }
}

/// # Safety
/// See `continuo_string_free`.
#[no_mangle]
pub unsafe extern "C" fn continuo_spans_free(spans: OutSpans) {
    if !spans.data.is_null() {
        drop(Box::from_raw(std::ptr::slice_from_raw_parts_mut(spans.data, spans.size)));
    }
}
