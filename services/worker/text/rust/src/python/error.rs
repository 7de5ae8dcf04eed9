// SPDX-License-Identifier: Apache-2.0
//! The errors that end the rendering of a template, and the work that one rendering may do.

use std::cell::Cell;
use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Python would raise an exception, too.
    Raised,
    /// Python would go on, but this is not supported here.
    Refused,
    OutOfSteps,
    TooLong,
}

#[derive(Debug)]
pub struct Error {
    pub kind: Kind,
    pub message: String,
}

pub type Result<T> = std::result::Result<T, Error>;

pub fn raised(message: impl Into<String>) -> Error {
    Error { kind: Kind::Raised, message: message.into() }
}

pub fn refused(thing: impl fmt::Display) -> Error {
    Error { kind: Kind::Refused, message: format!("{thing} is not supported in a chat template") }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

thread_local! {
    static STEPS_LEFT: Cell<u64> = const { Cell::new(0) };
}

/// Sets the steps that this thread may do from now on.
pub fn set_steps(steps: u64) {
    STEPS_LEFT.set(steps);
}

/// Returns what this thread may still do.
pub fn steps_left() -> u64 {
    STEPS_LEFT.get()
}

/// Takes `steps` of those that are left. Every node of a template, every item of a list and every few
/// hundred bytes of a string that something reads or makes is a step.
pub fn charge(steps: usize) -> Result<()> {
    let left = STEPS_LEFT.get();
    match left.checked_sub(steps as u64) {
        Some(rest) => {
            STEPS_LEFT.set(rest);
            Ok(())
        }
        None => {
            STEPS_LEFT.set(0);
            Err(Error { kind: Kind::OutOfSteps, message: "too many steps".to_owned() })
        }
    }
}

/// Takes the steps of reading or making a text.
pub fn charge_bytes(bytes: usize) -> Result<()> {
    charge(1 + bytes / 256)
}
