// SPDX-License-Identifier: Apache-2.0
//! The kinds of characters that a string has, in the words of Python's str.

/// Python's white space: Unicode's, and the four separators of ASCII.
pub fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\x1c'..='\x1f').contains(&c)
}

pub fn strip(text: &str) -> &str {
    text.trim_matches(is_space)
}

fn is_cased(c: char) -> bool {
    c.is_uppercase() || c.is_lowercase() || is_title(c)
}

/// A letter in title case, such as ǅ.
fn is_title(c: char) -> bool {
    matches!(c as u32, 0x1c5 | 0x1c8 | 0x1cb | 0x1f2
        | 0x1f88..=0x1f8f | 0x1f98..=0x1f9f | 0x1fa8..=0x1faf | 0x1fbc | 0x1fcc | 0x1ffc)
}

/// The result of one of Python's tests of strings, or nothing for another name.
pub fn test(text: &str, name: &str) -> Option<bool> {
    let all = |of: fn(char) -> bool| !text.is_empty() && text.chars().all(of);
    Some(match name {
        "isspace" => all(is_space),
        "isascii" => text.is_ascii(),
        "isprintable" => text.chars().all(super::repr::is_printable),
        "isalpha" => all(is_alpha),
        "isdecimal" => all(is_decimal),
        "isdigit" => all(is_digit),
        "isnumeric" => all(is_numeric),
        "isalnum" => all(|c| is_alpha(c) || is_numeric(c)),
        "islower" => {
            text.chars().any(char::is_lowercase)
                && !text.chars().any(|c| c.is_uppercase() || is_title(c))
        }
        "isupper" => {
            text.chars().any(char::is_uppercase)
                && !text.chars().any(|c| c.is_lowercase() || is_title(c))
        }
        "istitle" => is_title_text(text),
        "isidentifier" => {
            let mut chars = text.chars();
            chars.next().is_some_and(|c| c == '_' || is_alpha(c))
                && chars.all(|c| c == '_' || c.is_alphanumeric())
        }
        _ => return None,
    })
}

fn is_alpha(c: char) -> bool {
    c.is_alphabetic() && !(c.is_numeric() && !is_ideograph(c))
}

fn is_ideograph(c: char) -> bool {
    matches!(c as u32, 0x3400..=0x9fff | 0xf900..=0xfaff | 0x20000..=0x3ffff)
}

/// Characters of the Unicode category Nd, by the blocks of ten that they come in.
fn is_decimal(c: char) -> bool {
    const ZEROS: [u32; 37] = [
        0x30, 0x660, 0x6f0, 0x7c0, 0x966, 0x9e6, 0xa66, 0xae6, 0xb66, 0xbe6, 0xc66, 0xce6, 0xd66,
        0xde6, 0xe50, 0xed0, 0xf20, 0x1040, 0x1090, 0x17e0, 0x1810, 0x1946, 0x19d0, 0x1a80, 0x1a90,
        0x1b50, 0x1bb0, 0x1c40, 0x1c50, 0xa620, 0xa8d0, 0xa900, 0xa9d0, 0xa9f0, 0xaa50, 0xabf0,
        0xff10,
    ];
    let code = c as u32;
    ZEROS.iter().any(|zero| (*zero..zero + 10).contains(&code))
        || (0x1d7ce..=0x1d7ff).contains(&code)
}

/// Decimals, superscripts, subscripts, and digits in circles and brackets.
fn is_digit(c: char) -> bool {
    is_decimal(c)
        || matches!(c as u32, 0xb2 | 0xb3 | 0xb9 | 0x2070 | 0x2074..=0x2079 | 0x2080..=0x2089
            | 0x2460..=0x2468 | 0x2474..=0x247c | 0x2488..=0x2490 | 0x24ea | 0x24f5..=0x24fd
            | 0x24ff | 0x2776..=0x277e | 0x2780..=0x2788 | 0x278a..=0x2792)
}

fn is_numeric(c: char) -> bool {
    const IDEOGRAPHS: &str = "一二三四五六七八九十百千万億兆零〇両参壱弐";
    c.is_numeric() || IDEOGRAPHS.contains(c)
}

/// A capital after every character without case, and nowhere else.
fn is_title_text(text: &str) -> bool {
    let (mut any, mut after_cased) = (false, false);
    for c in text.chars() {
        if c.is_uppercase() || is_title(c) {
            if after_cased {
                return false;
            }
            (any, after_cased) = (true, true);
        } else if c.is_lowercase() {
            if !after_cased {
                return false;
            }
            any = true;
        } else {
            after_cased = false;
        }
    }
    any
}

/// The character's title case: its first capital, and the rest small.
pub fn push_title(c: char, out: &mut String) {
    let title = match c as u32 {
        0x1c4..=0x1c6 => Some('\u{1c5}'),
        0x1c7..=0x1c9 => Some('\u{1c8}'),
        0x1ca..=0x1cc => Some('\u{1cb}'),
        0x1f1..=0x1f3 => Some('\u{1f2}'),
        _ => None,
    };
    if let Some(title) = title {
        return out.push(title);
    }
    let mut upper = c.to_uppercase();
    out.extend(upper.next());
    out.extend(upper.flat_map(char::to_lowercase));
}

pub fn is_cased_char(c: char) -> bool {
    is_cased(c)
}
