// SPDX-License-Identifier: Apache-2.0
//! Reads the fields of a message of Protocol Buffers, which may be any bytes.

use crate::error::{Error, Result};

pub enum Value<'a> {
    Varint(u64),
    Fixed32(u32),
    Fixed64,
    Bytes(&'a [u8]),
}

pub struct Message<'a> {
    rest: &'a [u8],
}

impl<'a> Message<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Message { rest: bytes }
    }

    /// The next field's number and value; None at the end.
    pub fn next(&mut self) -> Result<Option<(u64, Value<'a>)>> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let key = self.varint()?;
        let value = match key & 7 {
            0 => Value::Varint(self.varint()?),
            1 => {
                self.take(8)?;
                Value::Fixed64
            }
            2 => {
                let size = self.varint()?;
                Value::Bytes(self.take(size)?)
            }
            5 => {
                let bytes = self.take(4)?;
                Value::Fixed32(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
            }
            _ => return Err(broken()),
        };
        Ok(Some((key >> 3, value)))
    }

    fn take(&mut self, size: u64) -> Result<&'a [u8]> {
        if size > self.rest.len() as u64 {
            return Err(broken());
        }
        let (taken, rest) = self.rest.split_at(size as usize);
        self.rest = rest;
        Ok(taken)
    }

    fn varint(&mut self) -> Result<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?[0];
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(broken())
    }
}

fn broken() -> Error {
    Error::invalid("is no SentencePiece model, or a part of one")
}
