// SPDX-License-Identifier: Apache-2.0
//! format(value, specification), the language of str.format's specifications.

use super::error::{raised, refused, Result};
use super::float;
use super::integer;
use super::repr;
use super::text::{Builder, Str};
use super::value::Value;

#[derive(Default)]
struct Spec {
    fill: Option<char>,
    align: Option<char>,
    sign: Option<char>,
    alternate: bool,
    no_negative_zero: bool,
    zero: bool,
    width: usize,
    grouping: Option<char>,
    precision: Option<usize>,
    kind: Option<char>,
}

fn parse(text: &str) -> Result<Spec> {
    let chars: Vec<char> = text.chars().collect();
    let mut at = 0;
    let mut spec = Spec::default();
    let is_align = |c: Option<&char>| matches!(c, Some('<' | '>' | '=' | '^'));
    if is_align(chars.get(1)) {
        (spec.fill, spec.align) = (Some(chars[0]), Some(chars[1]));
        at = 2;
    } else if is_align(chars.first()) {
        spec.align = Some(chars[0]);
        at = 1;
    }
    if let Some(sign @ ('+' | '-' | ' ')) = chars.get(at) {
        spec.sign = Some(*sign);
        at += 1;
    }
    if chars.get(at) == Some(&'z') {
        spec.no_negative_zero = true;
        at += 1;
    }
    if chars.get(at) == Some(&'#') {
        spec.alternate = true;
        at += 1;
    }
    if spec.fill.is_none() && chars.get(at) == Some(&'0') {
        spec.zero = true;
        at += 1;
    }
    let number = |at: &mut usize| {
        let begin = *at;
        while chars.get(*at).is_some_and(char::is_ascii_digit) {
            *at += 1;
        }
        let digits: String = chars[begin..*at].iter().collect();
        (!digits.is_empty()).then(|| digits.parse::<usize>().unwrap_or(usize::MAX))
    };
    spec.width = number(&mut at).unwrap_or(0);
    if let Some(grouping @ (',' | '_')) = chars.get(at) {
        spec.grouping = Some(*grouping);
        at += 1;
        if matches!(chars.get(at), Some(',' | '_')) {
            return Err(raised("Cannot specify two groupings"));
        }
    }
    if chars.get(at) == Some(&'.') {
        at += 1;
        spec.precision = number(&mut at);
        if spec.precision.is_none() {
            return Err(raised("Format specifier missing precision"));
        }
    }
    spec.kind = chars.get(at).copied();
    if chars.len() > at + 1 {
        return Err(raised("Invalid format specifier"));
    }
    Ok(spec)
}

pub fn format(value: &Value, specification: &str) -> Result<Str> {
    if specification.is_empty() {
        return repr::to_str(value);
    }
    match value {
        Value::Str(s) => format_str(s, &parse(specification)?),
        Value::Int(_) | Value::Bool(_) => {
            let spec = parse(specification)?;
            let n = value.as_int().unwrap_or(0);
            match spec.kind {
                Some('e' | 'E' | 'f' | 'F' | 'g' | 'G' | '%') => {
                    format_float(integer::to_float(n), &spec)
                }
                _ => format_int(n, &spec),
            }
        }
        Value::Float(x) => format_float(*x, &parse(specification)?),
        _ => Err(raised(format!(
            "unsupported format string passed to {}.__format__",
            value.type_name()
        ))),
    }
}

fn format_str(s: &Str, spec: &Spec) -> Result<Str> {
    if spec.sign.is_some() || spec.alternate || spec.no_negative_zero || spec.grouping.is_some() {
        return Err(raised("Sign, # and grouping are not allowed in string format specifier"));
    }
    if spec.align == Some('=') {
        return Err(raised("'=' alignment not allowed in string format specifier"));
    }
    if !matches!(spec.kind, None | Some('s')) {
        return Err(raised("Unknown format code for object of type 'str'"));
    }
    let end = spec.precision.map_or(s.len(), |precision| s.offset_of(precision));
    let fill = spec.fill.unwrap_or(if spec.zero { '0' } else { ' ' });
    pad(spec, "", &s.slice(0..end).with_markup(false), fill, spec.align.unwrap_or('<'))
}

fn sign_of(negative: bool, spec: &Spec) -> &'static str {
    match (negative, spec.sign) {
        (true, _) => "-",
        (_, Some('+')) => "+",
        (_, Some(' ')) => " ",
        _ => "",
    }
}

/// A separator in front of every `size` digits of the part before the point.
fn grouped(digits: &str, separator: char, size: usize) -> String {
    let whole = digits.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(digits.len());
    let whole = digits[..whole].find('e').unwrap_or(whole).min(whole);
    let (whole, rest) = if size == 4 { (digits, "") } else { digits.split_at(whole) };
    let mut out = String::new();
    for (index, c) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index) % size == 0 {
            out.push(separator);
        }
        out.push(c);
    }
    out + rest
}

fn format_number(spec: &Spec, sign: &str, digits: &str, group: usize) -> Result<Str> {
    let zero = spec.zero && spec.align.is_none();
    let fill = spec.fill.unwrap_or(if spec.zero { '0' } else { ' ' });
    let align = spec.align.unwrap_or(if zero { '=' } else { '>' });
    let digits = match spec.grouping {
        Some(_) if fill == '0' && align == '=' => {
            return Err(refused("a format with zeros in front and a separator of thousands"));
        }
        Some(separator) => grouped(digits, separator, group),
        None => digits.to_owned(),
    };
    pad(spec, sign, &Str::from(digits.as_str()), fill, align)
}

fn format_int(n: i128, spec: &Spec) -> Result<Str> {
    if spec.precision.is_some() {
        return Err(raised("Precision not allowed in integer format specifier"));
    }
    if spec.no_negative_zero {
        return Err(raised("Negative zero coercion (z) not allowed in integer format specifier"));
    }
    let magnitude = n.unsigned_abs();
    let (digits, prefix, group) = match spec.kind {
        None | Some('d') => (magnitude.to_string(), "", 3),
        Some('n') if spec.grouping.is_none() => (magnitude.to_string(), "", 3),
        Some('b') => (format!("{magnitude:b}"), "0b", 4),
        Some('o') => (format!("{magnitude:o}"), "0o", 4),
        Some('x') => (format!("{magnitude:x}"), "0x", 4),
        Some('X') => (format!("{magnitude:X}"), "0X", 4),
        Some('c') => {
            if spec.sign.is_some() || spec.alternate || spec.grouping.is_some() {
                return Err(raised("Sign not allowed with integer format specifier 'c'"));
            }
            let c = u32::try_from(n).ok().and_then(char::from_u32);
            let Some(c) = c else { return Err(raised("%c arg not in range(0x110000)")) };
            return format_number(spec, "", &c.to_string(), 3);
        }
        Some(kind) => {
            return Err(raised(format!("Unknown format code '{kind}' for object of type 'int'")));
        }
    };
    if group == 4 && spec.grouping == Some(',') {
        return Err(raised("Cannot specify ',' with 'x'."));
    }
    let mut sign = sign_of(n < 0, spec).to_owned();
    if spec.alternate {
        sign.push_str(prefix);
    }
    format_number(spec, &sign, &digits, group)
}

fn format_float(x: f64, spec: &Spec) -> Result<Str> {
    let kind = match spec.kind {
        None => None,
        Some('n') if spec.grouping.is_none() => Some('g'),
        Some(kind @ ('e' | 'E' | 'f' | 'F' | 'g' | 'G' | '%')) => Some(kind),
        Some(kind) => {
            return Err(raised(format!("Unknown format code '{kind}' for object of type 'float'")));
        }
    };
    if spec.precision.is_some_and(|precision| precision > 1_000_000) {
        return Err(super::text::too_long());
    }
    let magnitude = if kind == Some('%') { (x * 100.0).abs() } else { x.abs() };
    let mut text = if !magnitude.is_finite() {
        float::non_finite(magnitude).to_owned()
    } else {
        match (kind, spec.precision) {
            (None, None) if spec.alternate => return Err(refused("the format # of a float")),
            (None, None) => float::repr(magnitude),
            (None, Some(precision)) => float::general(magnitude, precision, spec.alternate, true),
            (Some('%'), precision) => {
                float::fixed(magnitude, 'f', precision.unwrap_or(6), spec.alternate)
            }
            (Some(kind), precision) => {
                let lower = kind.to_ascii_lowercase();
                float::fixed(magnitude, lower, precision.unwrap_or(6), spec.alternate)
            }
        }
    };
    let mut negative = x.is_sign_negative() && !x.is_nan();
    if spec.no_negative_zero && !text.bytes().any(|b| (b'1'..=b'9').contains(&b)) {
        negative = false;
    }
    match kind {
        Some('%') => text.push('%'),
        Some(kind) if kind.is_ascii_uppercase() => text = text.to_ascii_uppercase(),
        _ => {}
    }
    format_number(spec, sign_of(negative, spec), &text, 3)
}

fn pad(spec: &Spec, sign: &str, text: &Str, fill: char, align: char) -> Result<Str> {
    let total = spec.width.saturating_sub(sign.len() + text.num_chars());
    let (left, inner, right) = match align {
        '<' => (0, 0, total),
        '^' => (total / 2, 0, total - total / 2),
        '=' => (0, total, 0),
        _ => (total, 0, 0),
    };
    let mut out = Builder::default();
    out.pad(fill, left);
    out.push_str(sign);
    out.pad(fill, inner);
    out.push(text);
    out.pad(fill, right);
    out.finish()
}
