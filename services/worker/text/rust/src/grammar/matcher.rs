// SPDX-License-Identifier: Apache-2.0
//! One answer on its way through a grammar.

use llguidance::api::StopReason;
use llguidance::TokenParser;

use crate::error::{Code, Error, Result};

#[derive(Clone)]
enum State {
    Matching,
    /// The grammar goes on with bytes that no token of the vocabulary begins with. It ends with a
    /// rollback.
    DeadEnd,
    Failed(String),
}

pub struct Matcher {
    parser: TokenParser,
    state: State,
    /// The answer can end here, and no token can come.
    is_over: bool,
    num_tokens: usize,
    /// Ids accepted after the matcher stopped matching.
    num_ignored: usize,
}

impl Matcher {
    pub fn new(parser: TokenParser, num_tokens: usize) -> Result<Matcher> {
        let mut matcher =
            Matcher { parser, state: State::Matching, is_over: false, num_tokens, num_ignored: 0 };
        matcher.look_for_end();
        matcher.status().map(|()| matcher)
    }

    pub fn deep_clone(&self) -> Matcher {
        Matcher {
            parser: self.parser.deep_clone(),
            state: self.state.clone(),
            is_over: self.is_over,
            num_tokens: self.num_tokens,
            num_ignored: self.num_ignored,
        }
    }

    pub fn fail(&mut self, why: String) {
        self.state = State::Failed(why);
    }

    pub fn status(&self) -> Result<()> {
        match &self.state {
            State::Matching => Ok(()),
            State::DeadEnd => Err(Error::new(
                Code::FailedPrecondition,
                "the constraint wants text that no token of the model begins with",
            )),
            State::Failed(why) => Err(Error::new(
                Code::ResourceExhausted,
                format!("the constraint is too complex to go on: {why}"),
            )),
        }
    }

    /// A matcher that no longer matches allows everything, so its sequence ends with the next token.
    fn is_matching(&self) -> bool {
        matches!(self.state, State::Matching)
    }

    /// Notices that only an end may come. The parser notices that itself where no lexeme is open.
    fn look_for_end(&mut self) {
        let stopped = match self.parser.check_stop() {
            Ok(stopped) => stopped,
            Err(error) => return self.fail(error.to_string()),
        };
        if stopped || !self.parser.is_accepting() {
            return;
        }
        let tokens = self.parser.token_env.clone();
        let trie = tokens.tok_trie();
        self.is_over = !self.parser.parser.with_recognizer(|r| trie.has_valid_extensions(r, &[]));
        if let Some(error) = self.parser.parser.get_error() {
            self.fail(error.message());
        }
    }

    /// Clears the bits of ids that may not come next.
    pub fn fill_mask(&mut self, mask: &mut [u32]) {
        if !self.is_matching() {
            return;
        }
        if self.must_end() {
            mask.fill(0);
            return;
        }
        match self.parser.compute_mask() {
            Ok(allowed) => {
                let allowed = allowed.as_slice();
                for (index, word) in mask.iter_mut().enumerate() {
                    *word &= allowed.get(index).copied().unwrap_or(0) & self.ids_in_word(index);
                }
            }
            Err(_) if self.parser.stop_reason() == StopReason::NoExtensionBias => {
                self.state = State::DeadEnd;
            }
            Err(error) => self.fail(error.to_string()),
        }
    }

    /// The bits of ids of the vocabulary: the trie has one more.
    fn ids_in_word(&self, index: usize) -> u32 {
        match self.num_tokens.saturating_sub(index * 32) {
            0 => 0,
            rest @ 1..=31 => (1 << rest) - 1,
            _ => u32::MAX,
        }
    }

    /// False for an id that may not come next; nothing has changed then.
    pub fn accept(&mut self, id: i32) -> bool {
        if !self.is_matching() {
            self.num_ignored += 1;
            return true;
        }
        if id < 0 || id as usize >= self.num_tokens {
            return false;
        }
        match self.parser.validate_token(id as u32) {
            Ok(true) => match self.parser.consume_token(id as u32) {
                Ok(0) => self.look_for_end(),
                Ok(_) => self.fail("it takes tokens back".to_owned()),
                Err(error) => self.fail(error.to_string()),
            },
            Ok(false) => match self.parser.parser.get_error() {
                None => return false,
                Some(error) => self.fail(error.message()),
            },
            Err(error) => self.fail(error.to_string()),
        }
        true
    }

    /// Takes the last `count` accepted ids back.
    pub fn rollback(&mut self, count: usize) {
        let ignored = count.min(self.num_ignored);
        self.num_ignored -= ignored;
        if count == ignored || matches!(self.state, State::Failed(_)) {
            return;
        }
        match self.parser.rollback(count - ignored) {
            Ok(()) => {
                self.state = State::Matching;
                self.is_over = false;
            }
            Err(error) => self.fail(error.to_string()),
        }
    }

    /// The answer may end here.
    pub fn can_end(&mut self) -> bool {
        !self.is_matching() || self.parser.is_accepting()
    }

    /// Only an end may come.
    pub fn must_end(&self) -> bool {
        !self.is_matching() || self.is_over || self.parser.stopped()
    }
}
