// SPDX-License-Identifier: Apache-2.0
//! The methods of Python's str.

use std::ops::Range;

use super::arguments::{Arguments, Bound};
use super::error::{charge_bytes, raised, refused, Result};
use super::operators::escape;
use super::str_tests::{self, is_cased_char, is_space, push_title};
use super::text::{Builder, Str};
use super::value::Value;

pub const NAMES: [&str; 47] = [
    "capitalize",
    "casefold",
    "center",
    "count",
    "encode",
    "endswith",
    "expandtabs",
    "find",
    "format",
    "format_map",
    "index",
    "isalnum",
    "isalpha",
    "isascii",
    "isdecimal",
    "isdigit",
    "isidentifier",
    "islower",
    "isnumeric",
    "isprintable",
    "isspace",
    "istitle",
    "isupper",
    "join",
    "ljust",
    "lower",
    "lstrip",
    "maketrans",
    "partition",
    "removeprefix",
    "removesuffix",
    "replace",
    "rfind",
    "rindex",
    "rjust",
    "rpartition",
    "rsplit",
    "rstrip",
    "split",
    "splitlines",
    "startswith",
    "strip",
    "swapcase",
    "title",
    "translate",
    "upper",
    "zfill",
];

/// Calls a method. `join`, `format` and `format_map` are the interpreter's, which iterates and looks up.
pub fn call(s: &Str, name: &str, arguments: Arguments) -> Result<Value> {
    charge_bytes(s.len())?;
    let text = |result: Result<Str>| result.map(|r| Value::Str(r.with_markup(s.markup)));
    if let Some(result) = str_tests::test(s.as_str(), name) {
        arguments.bind("str.is…", &[])?;
        return Ok(Value::Bool(result));
    }
    match name {
        "lower" | "upper" | "swapcase" | "title" | "capitalize" | "casefold" => {
            arguments.bind("str.lower", &[])?;
            text(change_case(s, name))
        }
        "strip" | "lstrip" | "rstrip" => {
            let mut bound = arguments.bind("str.strip", &[""])?;
            let chars = bound.optional_str(0)?;
            Ok(Value::Str(strip(s, name, chars.as_ref().map(Str::as_str))))
        }
        "removeprefix" => {
            let prefix = arguments.bind("str.removeprefix", &[""])?.required_str(0)?;
            let cut = if s.as_str().starts_with(prefix.as_str()) { prefix.len() } else { 0 };
            Ok(Value::Str(s.slice(cut..s.len())))
        }
        "removesuffix" => {
            let suffix = arguments.bind("str.removesuffix", &[""])?.required_str(0)?;
            let cut = if s.as_str().ends_with(suffix.as_str()) { suffix.len() } else { 0 };
            Ok(Value::Str(s.slice(0..s.len() - cut)))
        }
        "startswith" | "endswith" => starts_or_ends(s, name, arguments),
        "find" | "rfind" | "index" | "rindex" | "count" => find(s, name, arguments),
        "replace" => {
            let mut bound = arguments.bind("str.replace", &["", "", ""])?;
            let (old, new) = (bound.required_str(0)?, bound.required_str(1)?);
            let count = bound.int(2, -1)?;
            let new = if s.markup { escape(&new)? } else { new };
            text(replace(s, old.as_str(), &new, count))
        }
        "split" | "rsplit" => split(s, name == "rsplit", arguments),
        "splitlines" => {
            let keep = arguments.bind("str.splitlines", &["keepends"])?.flag(0, false)?;
            let lines = line_ranges(s.as_str(), keep);
            Value::list(lines.into_iter().map(|line| Value::Str(s.slice(line))).collect())
        }
        "partition" | "rpartition" => {
            let separator = arguments.bind("str.partition", &[""])?.required_str(0)?;
            partition(s, name == "rpartition", &separator)
        }
        "center" | "ljust" | "rjust" => {
            let mut bound = arguments.bind("str.center", &["", ""])?;
            let width = bound.required_int(0)?;
            let fill = one_char(&mut bound, 1)?;
            text(justify(s, name, width, fill))
        }
        "zfill" => {
            let width = arguments.bind("str.zfill", &[""])?.required_int(0)?;
            let signed = s.as_str().starts_with(['+', '-']);
            let mut out = Builder::default();
            out.push_part(s, 0..usize::from(signed));
            out.pad('0', missing(s, width));
            out.push_part(s, usize::from(signed)..s.len());
            text(out.finish())
        }
        "expandtabs" => {
            let size = arguments.bind("str.expandtabs", &["tabsize"])?.int(0, 8)?;
            text(expand_tabs(s, size))
        }
        "encode" => Err(refused("str.encode, as there are no bytes,")),
        _ => Err(refused(format!("str.{name}"))),
    }
}

fn one_char(bound: &mut Bound, place: usize) -> Result<char> {
    let Some(fill) = bound.take(place) else { return Ok(' ') };
    let text = fill.as_str().map(|s| s.as_str().chars().collect::<Vec<char>>());
    match text.as_deref() {
        Some([c]) => Ok(*c),
        _ => Err(raised("the fill character must be exactly one character long")),
    }
}

/// How many characters `s` lacks to be `width` long.
fn missing(s: &Str, width: i128) -> usize {
    let missing = width.saturating_sub(s.num_chars() as i128).max(0);
    usize::try_from(missing).unwrap_or(usize::MAX)
}

pub fn justify(s: &Str, how: &str, width: i128, fill: char) -> Result<Str> {
    let total = missing(s, width);
    let left = match how {
        "ljust" => 0,
        "rjust" => total,
        // Python's rounding: to the left where the width is odd.
        _ => total / 2 + (total & usize::try_from(width.max(0)).unwrap_or(0) & 1),
    };
    let mut out = Builder::default();
    out.pad(fill, left);
    out.push(s);
    out.pad(fill, total - left);
    out.finish()
}

pub fn change_case(s: &Str, how: &str) -> Result<Str> {
    let mut first = true;
    let mut after_cased = false;
    if how == "casefold" && !s.as_str().is_ascii() {
        return Err(refused("str.casefold of a text outside ASCII"));
    }
    let changed = s.map(|c, out| {
        let capital = match how {
            "upper" => return out.extend(c.to_uppercase()),
            "lower" | "casefold" => false,
            "swapcase" if c.is_lowercase() => return out.extend(c.to_uppercase()),
            "swapcase" if !c.is_uppercase() => return out.push(c),
            "swapcase" => false,
            "title" => !after_cased,
            _ => first,
        };
        first = false;
        after_cased = is_cased_char(c);
        if capital {
            push_title(c, out);
        } else {
            out.extend(c.to_lowercase());
        }
    })?;
    // A capital sigma at the end of a word becomes another small letter, of the same length.
    if how == "lower" && s.as_str().contains('Σ') {
        let whole = s.as_str().to_lowercase();
        if whole.len() == changed.len() {
            return Ok(changed.with_text(&whole));
        }
    }
    if how != "upper" && s.as_str().contains('Σ') {
        return Err(refused(format!("str.{how} of a text with the letter Σ")));
    }
    Ok(changed)
}

pub fn strip(s: &Str, how: &str, chars: Option<&str>) -> Str {
    let matches = |c: char| chars.map_or(is_space(c), |chars| chars.contains(c));
    let text = s.as_str();
    let begin =
        if how == "rstrip" { 0 } else { text.len() - text.trim_start_matches(matches).len() };
    let end = if how == "lstrip" { text.len() } else { text.trim_end_matches(matches).len() };
    s.slice(begin..end.max(begin))
}

/// The bytes that `start` and `end` of find(), count() and the like select; nothing where the start is
/// behind the end.
fn selected(s: &Str, bound: &mut Bound, place: usize) -> Result<Option<Range<usize>>> {
    let (start, end) = (bound.take_some(place), bound.take_some(place + 1));
    if start.is_none() && end.is_none() {
        return Ok(Some(0..s.len()));
    }
    let length = s.num_chars() as i128;
    let index = |value: Option<Value>, default: i128| match value {
        None => Ok(default),
        Some(value) => match value.as_int() {
            Some(n) if n < 0 => Ok((n + length).max(0)),
            Some(n) => Ok(n),
            None => Err(raised("slice indices must be integers or None")),
        },
    };
    let start = index(start, 0)?;
    let end = index(end, length)?.min(length);
    if start > end {
        return Ok(None);
    }
    Ok(Some(s.offset_of(start as usize)..s.offset_of(end as usize)))
}

fn starts_or_ends(s: &Str, name: &str, arguments: Arguments) -> Result<Value> {
    let mut bound = arguments.bind("str.startswith", &["", "", ""])?;
    let wanted = bound.required(0)?;
    let range = selected(s, &mut bound, 1)?;
    let wanted: Vec<Value> = match &wanted {
        Value::Tuple(list) => list.items.clone(),
        Value::Str(_) => vec![wanted],
        other => {
            let kind = other.type_name();
            return Err(raised(format!(
                "{name} first arg must be str or a tuple of str, not {kind}"
            )));
        }
    };
    for part in wanted {
        let Value::Str(part) = part else {
            return Err(raised("tuple for startswith must only contain str"));
        };
        let found = range.clone().is_some_and(|range| match name {
            "startswith" => s.as_str()[range].starts_with(part.as_str()),
            _ => s.as_str()[range].ends_with(part.as_str()),
        });
        if found {
            return Ok(Value::Bool(true));
        }
    }
    Ok(Value::Bool(false))
}

fn find(s: &Str, name: &str, arguments: Arguments) -> Result<Value> {
    let mut bound = arguments.bind("str.find", &["", "", ""])?;
    let part = bound.required_str(0)?;
    let range = selected(s, &mut bound, 1)?;
    let begin = range.as_ref().map_or(0, |range| range.start);
    let within = range.map(|range| &s.as_str()[range]);
    if name == "count" {
        let count = within.map_or(0, |within| match part.as_str() {
            "" => within.chars().count() + 1,
            part => within.matches(part).count(),
        });
        return Ok(Value::Int(count as i128));
    }
    let found = within.and_then(|within| match name {
        "find" | "index" => within.find(part.as_str()),
        _ => within.rfind(part.as_str()),
    });
    match found {
        Some(at) => Ok(Value::Int(s.as_str()[..begin + at].chars().count() as i128)),
        None if name.ends_with("index") => Err(raised("substring not found")),
        None => Ok(Value::Int(-1)),
    }
}

pub fn replace(s: &Str, old: &str, new: &Str, count: i128) -> Result<Str> {
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let mut out = Builder::default();
    let mut done = 0;
    for (at, _) in s.as_str().match_indices(old).take(count) {
        out.push_part(s, done..at);
        out.push(new);
        done = at + old.len();
        if out.is_full() {
            break;
        }
    }
    out.push_part(s, done..s.len());
    let replaced = out.finish()?;
    charge_bytes(replaced.len())?;
    Ok(replaced)
}

fn split(s: &Str, from_right: bool, arguments: Arguments) -> Result<Value> {
    let mut bound = arguments.bind("str.split", &["sep", "maxsplit"])?;
    let separator = bound.optional_str(0)?;
    let most = usize::try_from(bound.int(1, -1)?).unwrap_or(usize::MAX);
    let text = s.as_str();
    let ranges = match separator {
        Some(separator) if separator.is_empty() => return Err(raised("empty separator")),
        Some(separator) => split_at(text, separator.as_str(), most, from_right),
        None => split_at_space(text, most, from_right),
    };
    Value::list(ranges.into_iter().map(|range| Value::Str(s.slice(range))).collect())
}

fn split_at(text: &str, separator: &str, most: usize, from_right: bool) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    if from_right {
        let mut end = text.len();
        for (at, _) in text.rmatch_indices(separator).take(most) {
            ranges.push(at + separator.len()..end);
            end = at;
        }
        ranges.push(0..end);
        ranges.reverse();
        return ranges;
    }
    let mut begin = 0;
    for (at, _) in text.match_indices(separator).take(most) {
        ranges.push(begin..at);
        begin = at + separator.len();
    }
    ranges.push(begin..text.len());
    ranges
}

fn split_at_space(text: &str, most: usize, from_right: bool) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    if from_right {
        let mut end = text.trim_end_matches(is_space).len();
        while end > 0 && ranges.len() < most {
            let begin = text[..end]
                .rfind(is_space)
                .map_or(0, |at| at + text[at..].chars().next().map_or(0, char::len_utf8));
            ranges.push(begin..end);
            end = text[..begin].trim_end_matches(is_space).len();
        }
        if end > 0 {
            ranges.push(0..end);
        }
        ranges.reverse();
        return ranges;
    }
    let mut begin = text.len() - text.trim_start_matches(is_space).len();
    while begin < text.len() && ranges.len() < most {
        let end = text[begin..].find(is_space).map_or(text.len(), |at| begin + at);
        ranges.push(begin..end);
        begin = text.len() - text[end..].trim_start_matches(is_space).len();
    }
    if begin < text.len() {
        ranges.push(begin..text.len());
    }
    ranges
}

/// The lines of a text as splitlines() finds them.
pub fn line_ranges(text: &str, keep_ends: bool) -> Vec<Range<usize>> {
    let is_end = |c: char| {
        matches!(
            c,
            '\n' | '\r' | '\x0b' | '\x0c' | '\x1c'..='\x1e' | '\u{85}' | '\u{2028}' | '\u{2029}'
        )
    };
    let mut lines = Vec::new();
    let mut begin = 0;
    while begin < text.len() {
        let Some(at) = text[begin..].find(is_end).map(|at| begin + at) else {
            lines.push(begin..text.len());
            break;
        };
        let width = if text[at..].starts_with("\r\n") {
            2
        } else {
            text[at..].chars().next().map_or(1, char::len_utf8)
        };
        lines.push(begin..if keep_ends { at + width } else { at });
        begin = at + width;
    }
    lines
}

fn partition(s: &Str, from_right: bool, separator: &Str) -> Result<Value> {
    if separator.is_empty() {
        return Err(raised("empty separator"));
    }
    let text = s.as_str();
    let found =
        if from_right { text.rfind(separator.as_str()) } else { text.find(separator.as_str()) };
    let empty = || Str::from("").with_markup(s.markup);
    let parts = match found {
        Some(at) => {
            let end = at + separator.len();
            [s.slice(0..at), s.slice(at..end), s.slice(end..s.len())]
        }
        None if from_right => [empty(), empty(), s.clone()],
        None => [s.clone(), empty(), empty()],
    };
    Value::tuple(parts.into_iter().map(Value::Str).collect())
}

fn expand_tabs(s: &Str, size: i128) -> Result<Str> {
    let size = usize::try_from(size.max(0)).unwrap_or(usize::MAX);
    let mut column = 0usize;
    s.map(|c, out| match c {
        '\t' if size > 0 => {
            let spaces = size - column % size;
            column = column.saturating_add(spaces);
            // One tab of more is too long in any case.
            out.extend(std::iter::repeat_n(' ', spaces.min(super::text::MAX_TEXT_BYTES + 1)));
        }
        '\t' => {}
        c => {
            column = if c == '\n' || c == '\r' { 0 } else { column + 1 };
            out.push(c);
        }
    })
}

/// separator.join(items) of strings.
pub fn join(separator: &Str, items: &[Value]) -> Result<Str> {
    let mut out = Builder::default();
    for (index, item) in items.iter().enumerate() {
        let Value::Str(text) = item else {
            let kind = item.type_name();
            return Err(raised(format!(
                "sequence item {index}: expected str instance, {kind} found"
            )));
        };
        if index > 0 {
            out.push(separator);
        }
        out.push(text);
        if out.is_full() {
            break;
        }
    }
    let joined = out.finish()?;
    charge_bytes(joined.len())?;
    Ok(joined)
}
