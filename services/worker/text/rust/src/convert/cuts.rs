// SPDX-License-Identifier: Apache-2.0
//! Where tokens are cut into the pairs that they are merged from.
//!
//! A token of n bytes has up to n-1 such pairs, each of n bytes: a small file can say more merges than
//! memory holds. They are counted before any of them is written.

use crate::error::{Error, Result};

/// Eight times as many as the largest real vocabularies have.
const MAX_CUTS: usize = 1 << 22;
/// The bytes of all merges.
const MAX_BYTES: usize = 256 << 20;

/// Cuts in the order of their merges.
#[derive(Default)]
pub struct Cuts {
    cuts: Vec<(usize, usize)>,
    num_bytes: usize,
}

impl Cuts {
    /// `token` is any name of it, `at` a place in it, `bytes` how long it is in a merge.
    pub fn push(&mut self, token: usize, at: usize, bytes: usize) -> Result<()> {
        self.num_bytes += bytes;
        if self.cuts.len() >= MAX_CUTS || self.num_bytes > MAX_BYTES {
            return Err(Error::invalid(format!(
                "its tokens have too many merges: the limits are {MAX_CUTS} and {MAX_BYTES} bytes"
            )));
        }
        self.cuts.push((token, at));
        Ok(())
    }

    pub fn iter(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.cuts.iter().copied()
    }
}
