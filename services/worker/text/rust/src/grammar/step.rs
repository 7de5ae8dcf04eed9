// SPDX-License-Identifier: Apache-2.0
//! Steps of a grammar with bounded work: llguidance bounds it only while it makes a mask.
//!
//! Its parser gets fuel for the derivatives of regular expressions, and a bound on items, where it
//! makes a mask; taking a token works with what is left.

use std::sync::atomic::{AtomicBool, Ordering};

use llguidance::earley::{BiasComputer, ParserRecognizer};
use llguidance::toktrie::{SimpleVob, TokEnv, TokTrie};
use llguidance::TokenParser;

/// Fuel for all of one answer, about a second's worth.
const MAX_FUEL: u64 = 10_000_000;

/// Gives the parser fuel for the next token.
pub fn refuel(parser: &mut TokenParser) {
    run(parser, |_, _| false);
}

/// Returns whether an ordinary token may come next. Special tokens are not looked at.
pub fn has_next(parser: &mut TokenParser) -> bool {
    run(parser, |trie, recognizer| trie.has_valid_extensions(recognizer, &[]))
}

/// Tells why the parser cannot go on; None where it can.
pub fn error_of(parser: &TokenParser) -> Option<String> {
    if let Some(error) = parser.parser.get_error() {
        return Some(error.message());
    }
    let spent = parser.parser.stats().lexer_cost;
    (spent > MAX_FUEL).then(|| "the answer needs too many expressions".to_owned())
}

type Work = fn(&TokTrie, &mut ParserRecognizer<'_>) -> bool;

fn run(parser: &mut TokenParser, work: Work) -> bool {
    let step = Step { tokens: parser.token_env.clone(), work, result: AtomicBool::new(false) };
    // With a beginning of the token, the result is not taken for the mask.
    parser.parser.compute_bias(&step, b"a");
    step.result.into_inner()
}

struct Step {
    tokens: TokEnv,
    work: Work,
    result: AtomicBool,
}

impl BiasComputer for Step {
    fn compute_bias(&self, recognizer: &mut ParserRecognizer<'_>, _start: &[u8]) -> SimpleVob {
        self.result.store((self.work)(self.trie(), recognizer), Ordering::Relaxed);
        SimpleVob::new()
    }

    fn trie(&self) -> &TokTrie {
        self.tokens.tok_trie()
    }
}
