// SPDX-License-Identifier: Apache-2.0
//! Grammars that answers obey: llguidance over our own vocabulary.

mod compile;
mod environment;
mod ffi;
mod lark;
mod matcher;
mod meets;
mod numbers;
mod pattern;
mod pointer;
mod refusal;
mod schema;
mod step;

pub use environment::Environment;
