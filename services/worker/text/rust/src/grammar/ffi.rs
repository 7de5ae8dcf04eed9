// SPDX-License-Identifier: Apache-2.0
//! The functions of continuo_text.h about grammars. A panic in a matcher makes it fail.

use std::sync::Arc;

use crate::{code_of, guard, ContinuoText, Slice};

use super::compile::{Grammar, Kind};
use super::matcher::Matcher;

/// A ContinuoGrammar of continuo_text.h. Matchers keep it, too.
pub type SharedGrammar = Arc<Grammar>;

fn pointer_of<T>(result: crate::error::Result<T>) -> *mut T {
    result.map_or(std::ptr::null_mut(), |value| Box::into_raw(Box::new(value)))
}

/// # Safety
/// The arguments of this and the functions below are as continuo_text.h says.
#[no_mangle]
pub unsafe extern "C" fn continuo_grammar_compile(
    text: *const ContinuoText,
    kind: i32,
    source: Slice,
    around: Slice,
) -> *mut SharedGrammar {
    pointer_of(guard("the constraint", || {
        let source = source.utf8("the constraint")?;
        let around = Some(around.utf8("the constraint")?).filter(|lark| !lark.is_empty());
        Grammar::compile((*text).grammars()?, Kind::of(kind)?, source, around).map(Arc::new)
    }))
}

/// # Safety
/// See `continuo_grammar_compile`.
#[no_mangle]
pub unsafe extern "C" fn continuo_grammar_free(grammar: *mut SharedGrammar) {
    if !grammar.is_null() {
        drop(Box::from_raw(grammar));
    }
}

/// # Safety
/// See `continuo_grammar_compile`.
#[no_mangle]
pub unsafe extern "C" fn continuo_matcher_new(grammar: *const SharedGrammar) -> *mut Matcher {
    pointer_of(guard("the constraint", || Matcher::new((*grammar).clone())))
}

/// # Safety
/// See `continuo_grammar_compile`.
#[no_mangle]
pub unsafe extern "C" fn continuo_matcher_clone(matcher: *const Matcher) -> *mut Matcher {
    pointer_of(guard("the constraint", || Ok((*matcher).deep_clone())))
}

/// # Safety
/// See `continuo_grammar_compile`.
#[no_mangle]
pub unsafe extern "C" fn continuo_matcher_free(matcher: *mut Matcher) {
    if !matcher.is_null() {
        drop(Box::from_raw(matcher));
    }
}

/// # Safety
/// See `continuo_grammar_compile`.
#[no_mangle]
pub unsafe extern "C" fn continuo_matcher_status(matcher: *const Matcher) -> i32 {
    code_of(guard("the constraint", || (*matcher).status()))
}

/// Runs `work`, whose panic makes the matcher fail and gives `otherwise`.
unsafe fn with<T>(matcher: *mut Matcher, otherwise: T, work: impl FnOnce(&mut Matcher) -> T) -> T {
    let matcher = &mut *matcher;
    match guard("the constraint", || Ok(work(matcher))) {
        Ok(result) => result,
        Err(error) => {
            matcher.fail(error.message);
            otherwise
        }
    }
}

/// # Safety
/// See `continuo_grammar_compile`.
#[no_mangle]
pub unsafe extern "C" fn continuo_matcher_fill_mask(
    matcher: *mut Matcher,
    words: *mut u32,
    num_words: usize,
) {
    let mask = match num_words {
        0 => &mut [],
        _ => std::slice::from_raw_parts_mut(words, num_words),
    };
    with(matcher, (), |matcher| matcher.fill_mask(mask));
}

/// # Safety
/// See `continuo_grammar_compile`.
#[no_mangle]
pub unsafe extern "C" fn continuo_matcher_accept(matcher: *mut Matcher, id: i32) -> i32 {
    with(matcher, false, |matcher| matcher.accept(id)).into()
}

/// # Safety
/// See `continuo_grammar_compile`.
#[no_mangle]
pub unsafe extern "C" fn continuo_matcher_rollback(matcher: *mut Matcher, count: usize) {
    with(matcher, (), |matcher| matcher.rollback(count));
}

/// # Safety
/// See `continuo_grammar_compile`.
#[no_mangle]
pub unsafe extern "C" fn continuo_matcher_can_end(matcher: *mut Matcher) -> i32 {
    with(matcher, false, Matcher::can_end).into()
}

/// # Safety
/// See `continuo_grammar_compile`.
#[no_mangle]
pub unsafe extern "C" fn continuo_matcher_must_end(matcher: *mut Matcher) -> i32 {
    with(matcher, false, |matcher| matcher.must_end()).into()
}
