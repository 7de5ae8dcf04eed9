// SPDX-License-Identifier: Apache-2.0
//! A digest of JSON values that does not depend on white space or the order of keys.

use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

pub struct Digest(Sha256);

impl Digest {
    /// `domain` keeps digests of different things apart.
    pub fn new(domain: &str) -> Self {
        let mut digest = Digest(Sha256::new());
        digest.string(domain);
        digest
    }

    pub fn string(&mut self, s: &str) {
        self.0.update((s.len() as u64).to_le_bytes());
        self.0.update(s.as_bytes());
    }

    /// Every value is a tag, a length where it has one, and its parts.
    pub fn value(&mut self, value: &Value) {
        match value {
            Value::Null => self.0.update(b"n"),
            Value::Bool(b) => self.0.update(if *b { b"t" } else { b"f" }),
            Value::Number(n) => {
                self.0.update(b"0");
                self.string(&n.to_string());
            }
            Value::String(s) => {
                self.0.update(b"s");
                self.string(s);
            }
            Value::Array(items) => {
                self.0.update(b"a");
                self.0.update((items.len() as u64).to_le_bytes());
                items.iter().for_each(|item| self.value(item));
            }
            Value::Object(object) => self.object(object),
        }
    }

    pub fn object(&mut self, object: &Map<String, Value>) {
        self.0.update(b"o");
        self.0.update((object.len() as u64).to_le_bytes());
        let mut entries: Vec<_> = object.iter().collect();
        entries.sort_unstable_by_key(|(key, _)| *key);
        for (key, item) in entries {
            self.string(key);
            self.value(item);
        }
    }

    /// 64 lower-case hex digits.
    pub fn hex(self) -> String {
        self.0.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}
