// SPDX-License-Identifier: Apache-2.0
//! JSON pointers, and the references of schemas that have them.

use super::refusal::{refuse, Result};

/// A name as JSON pointers write it.
pub fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// The JSON pointer of a reference, with names as they are: llguidance takes them so.
pub fn pointer_of(reference: &str) -> Result<String> {
    let Some(fragment) = reference.strip_prefix('#') else {
        return refuse("only references within the schema, such as #/$defs/name, are supported");
    };
    if fragment.is_empty() {
        return Ok(String::new());
    }
    if !fragment.starts_with('/') || fragment == "/" {
        return refuse("only references within the schema, such as #/$defs/name, are supported");
    }
    let mut pointer = String::new();
    for name in fragment.split('/').skip(1) {
        let name = percent_decoded(name)?.replace("~1", "/").replace("~0", "~");
        if name.contains('/') {
            return refuse("names with a slash are not supported");
        }
        pointer.push('/');
        pointer.push_str(&name);
    }
    Ok(pointer)
}

fn percent_decoded(name: &str) -> Result<String> {
    let mut bytes = Vec::new();
    let mut rest = name.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digits = rest.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => bytes.push(byte),
            None => return refuse("not a JSON pointer"),
        }
        rest = &rest[2..];
    }
    String::from_utf8(bytes).or_else(|_| refuse("not UTF-8"))
}

/// A pointer of `pointer_of` as the standard writes it.
pub fn standard(pointer: &str) -> String {
    pointer.replace('~', "~0")
}
