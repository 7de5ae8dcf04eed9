// SPDX-License-Identifier: Apache-2.0
//! Python's values, and what its operators, methods and functions make of them.

pub mod arguments;
pub mod attributes;
pub mod error;
pub mod float;
pub mod format;
pub mod integer;
pub mod json;
pub mod operators;
pub mod percent;
pub mod repr;
pub mod sort;
pub mod str_format;
pub mod str_methods;
pub mod str_tests;
pub mod text;
pub mod value;
