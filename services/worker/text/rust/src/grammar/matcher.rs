// SPDX-License-Identifier: Apache-2.0
//! One answer on its way through a grammar.

use std::sync::Arc;

use llguidance::api::StopReason;
use llguidance::toktrie::SimpleVob;
use llguidance::TokenParser;

use crate::error::{Code, Error, Result};

use super::compile::Grammar;
use super::step;

#[derive(Clone)]
enum State {
    Matching,
    /// The answer can end here, and no token can come.
    Over,
    /// The grammar goes on with bytes that no token of the vocabulary begins with.
    DeadEnd,
    Failed(String),
}

pub struct Matcher {
    grammar: Arc<Grammar>,
    parser: TokenParser,
    state: State,
    accepted: Vec<u32>,
}

impl Matcher {
    pub fn new(grammar: Arc<Grammar>) -> Result<Matcher> {
        let parser = grammar.parser()?;
        let mut matcher = Matcher { grammar, parser, state: State::Matching, accepted: Vec::new() };
        matcher.look_for_end();
        Ok(matcher)
    }

    pub fn deep_clone(&self) -> Matcher {
        Matcher {
            grammar: self.grammar.clone(),
            parser: self.parser.deep_clone(),
            state: self.state.clone(),
            accepted: self.accepted.clone(),
        }
    }

    pub fn fail(&mut self, why: String) {
        self.state = State::Failed(why);
    }

    pub fn status(&self) -> Result<()> {
        match &self.state {
            State::Matching | State::Over => Ok(()),
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

    /// Notices that only an end may come. The parser does so itself where no lexeme is open.
    fn look_for_end(&mut self) {
        match self.parser.check_stop() {
            Ok(true) => self.state = State::Over,
            Ok(false) if self.parser.is_accepting() && !step::has_next(&mut self.parser) => {
                match self.parser.compute_mask() {
                    Ok(allowed) if self.num_allowed(&allowed) == 0 => self.state = State::Over,
                    Ok(_) => {}
                    Err(error) => return self.fail(error.to_string()),
                }
            }
            Ok(false) => {}
            Err(error) => return self.fail(error.to_string()),
        }
        if let Some(why) = step::error_of(&self.parser) {
            self.fail(why);
        }
    }

    /// The trie has one token more, which is allowed where an answer can end.
    fn num_allowed(&self, mask: &SimpleVob) -> usize {
        let end = self.grammar.num_tokens() as u32;
        mask.num_set() - usize::from(mask.is_allowed(end))
    }

    /// Clears the bits of ids that must not come next.
    pub fn fill_mask(&mut self, mask: &mut [u32]) {
        match self.state {
            State::Matching => {}
            State::Over => return mask.fill(0),
            State::DeadEnd | State::Failed(_) => return,
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
        if let Some(why) = step::error_of(&self.parser) {
            self.fail(why);
        }
    }

    /// The bits of ids of the vocabulary: the trie has one more.
    fn ids_in_word(&self, index: usize) -> u32 {
        match self.grammar.num_tokens().saturating_sub(index * 32) {
            0 => 0,
            rest @ 1..=31 => (1 << rest) - 1,
            _ => u32::MAX,
        }
    }

    /// False for an id that must not come next, and after a failure; nothing has changed then.
    pub fn accept(&mut self, id: i32) -> bool {
        let num_tokens = self.grammar.num_tokens();
        match (self.state.clone(), u32::try_from(id)) {
            (State::Matching, Ok(id)) if (id as usize) < num_tokens => self.accept_token(id),
            _ => false,
        }
    }

    fn accept_token(&mut self, id: u32) -> bool {
        step::refuel(&mut self.parser);
        let consumed = match self.parser.validate_token(id) {
            Ok(true) => self.parser.consume_token(id),
            Ok(false) => {
                if let Some(why) = step::error_of(&self.parser) {
                    self.fail(why);
                }
                return false;
            }
            Err(error) => Err(error),
        };
        match consumed {
            Ok(0) => {
                self.accepted.push(id);
                self.look_for_end();
                true
            }
            Ok(_) => {
                self.fail("it takes tokens back".to_owned());
                false
            }
            Err(error) => {
                self.fail(error.to_string());
                false
            }
        }
    }

    /// Takes the last `count` accepted ids back, and failures since.
    pub fn rollback(&mut self, count: usize) {
        assert!(count <= self.accepted.len(), "there are not so many ids");
        if count == 0 {
            return;
        }
        self.accepted.truncate(self.accepted.len() - count);
        let failed = matches!(self.state, State::Failed(_));
        self.state = State::Matching;
        if failed {
            return self.start_again();
        }
        if let Err(error) = self.parser.rollback(count) {
            self.fail(error.to_string());
        }
    }

    /// A parser that failed is of no use any more: another one is led to the same place.
    fn start_again(&mut self) {
        match self.grammar.parser() {
            Ok(parser) => self.parser = parser,
            Err(error) => return self.fail(error.message),
        }
        for id in std::mem::take(&mut self.accepted) {
            if !self.accept_token(id) {
                if self.status().is_ok() {
                    self.fail("it does not go the same way again".to_owned());
                }
                return;
            }
        }
    }

    /// The answer may end here.
    pub fn can_end(&mut self) -> bool {
        match self.state {
            State::Matching => self.parser.is_accepting(),
            State::Over => true,
            State::DeadEnd | State::Failed(_) => false,
        }
    }

    /// Only an end may come.
    pub fn must_end(&self) -> bool {
        matches!(self.state, State::Over)
    }
}
