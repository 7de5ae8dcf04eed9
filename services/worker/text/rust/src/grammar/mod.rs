// SPDX-License-Identifier: Apache-2.0
//! Grammars that answers obey: llguidance over our own vocabulary.

mod compile;
mod environment;
mod ffi;
mod matcher;

pub use environment::Environment;
