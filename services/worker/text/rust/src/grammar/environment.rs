// SPDX-License-Identifier: Apache-2.0
//! The vocabulary as llguidance wants it, made once a model and only for its first grammar.

use std::sync::Arc;

use llguidance::api::ParserLimits;
use llguidance::earley::SlicedBiasComputer;
use llguidance::toktrie::{ApproximateTokEnv, InferenceCapabilities, TokEnv, TokRxInfo, TokTrie};
use llguidance::ParserFactory;

use crate::decoder::TokenTable;
use crate::error::{Code, Error, Result};

/// The trie counts the bytes between two branches in ten bits; longer tokens are in no answer that
/// obeys a grammar.
const MAX_TOKEN_BYTES: usize = 1000;

/// Bounds what llguidance spends: in operations, never in time, so the same grammar is refused
/// everywhere.
pub fn limits(writer: Writer) -> ParserLimits {
    // Inputs that cost much say little new to a fuzzer, whose build is many times slower.
    let share = if cfg!(fuzzing) { 20 } else { 1 };
    // An item may cost as much as the square of its row has items, where a grammar is ambiguous. An
    // optional property is four items of the row behind a brace.
    let (max_items_in_row, step_max_items, max_grammar_size, step_lexer_fuel) = match writer {
        Writer::Worker => (2_000, 30_000, 100_000, 200_000),
        Writer::Client => (300, 10_000, 5_000, 100_000),
        Writer::ClientWithin => (300, 10_000, 100_000, 100_000),
    };
    ParserLimits {
        max_items_in_row,
        initial_lexer_fuel: 1_000_000 / share,
        step_lexer_fuel: step_lexer_fuel / share,
        step_max_items: step_max_items / share as usize,
        max_lexer_states: 20_000,
        max_grammar_size: max_grammar_size / share as usize,
        // A walk over the vocabulary for each large expression, without a bound.
        precompute_large_lexemes: false,
        verbose_errors: false,
    }
}

/// The writer of the rules of a grammar.
#[derive(Clone, Copy, PartialEq)]
pub enum Writer {
    /// Rules made of a schema, say: they are ambiguous only where alternatives are.
    Worker,
    /// Lark, or a regular expression.
    Client,
    /// The same within rules of the worker's, which may be many.
    ClientWithin,
}

pub struct Environment {
    pub factory: ParserFactory,
    pub num_tokens: usize,
}

impl Environment {
    pub fn new(table: &TokenTable) -> Result<Environment> {
        if table.collapses_repeats {
            return Err(Error::new(
                Code::FailedPrecondition,
                "the model's tokens have no bytes of their own (CTC), so no grammar applies",
            ));
        }
        let num_tokens = table.num_tokens();
        let mut words: Vec<Vec<u8>> = (0..num_tokens).map(|id| word(table, id)).collect();
        // The engine knows what ends an answer. This id is none of the model's.
        let end = num_tokens as u32;
        words.push(b"\xff<|continuo_end|>".to_vec());
        let trie = TokTrie::from(&TokRxInfo::new(end + 1, end), &words);
        let tokens: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
        let slices = SlicedBiasComputer::general_slices();
        let factory = ParserFactory::new(&tokens, InferenceCapabilities::default(), &slices);
        let mut factory = factory.map_err(|e| Error::invalid(format!("the vocabulary: {e}")))?;
        factory.quiet();
        Ok(Environment { factory, num_tokens })
    }
}

/// Special tokens have the prefix 0xFF, so no text reaches them. Without bytes a token is not in the
/// trie: no UTF-8 has the byte 0xFF.
fn word(table: &TokenTable, id: usize) -> Vec<u8> {
    let bytes = table.bytes_of(id);
    if bytes.is_empty() || bytes.len() > MAX_TOKEN_BYTES {
        return Vec::new();
    }
    if table.is_special[id] != 0 {
        return [&[TokTrie::SPECIAL_TOKEN_MARKER], bytes].concat();
    }
    if bytes.contains(&TokTrie::SPECIAL_TOKEN_MARKER) {
        return Vec::new();
    }
    bytes.to_vec()
}
