// SPDX-License-Identifier: Apache-2.0
//! The operator % of strings.

use super::error::{charge_bytes, raised, refused, Result};
use super::float;
use super::integer;
use super::repr;
use super::text::{Builder, Str};
use super::value::Value;

/// format % arguments
pub fn format(format: &Str, arguments: &Value) -> Result<Str> {
    if format.markup {
        return Err(refused("% of a Markup"));
    }
    let mut formatter =
        Formatter { format, at: 0, values: Values::of(arguments), out: Builder::default() };
    formatter.run()?;
    let text = formatter.out.finish()?;
    charge_bytes(text.len())?;
    Ok(text)
}

/// Where the values of the conversions come from.
struct Values<'a> {
    single: Option<&'a Value>,
    tuple: &'a [Value],
    next: usize,
    /// The argument as a mapping: then values may be left over.
    mapping: Option<&'a Value>,
}

impl<'a> Values<'a> {
    fn of(arguments: &'a Value) -> Values<'a> {
        let mapping = matches!(
            arguments,
            Value::Dict(_) | Value::List(_) | Value::Range(_) | Value::Undefined(_)
        );
        let (single, tuple) = match arguments {
            Value::Tuple(list) => (None, list.items.as_slice()),
            other => (Some(other), &[] as &[Value]),
        };
        Values { single, tuple, next: 0, mapping: mapping.then_some(arguments) }
    }

    fn next(&mut self) -> Result<Value> {
        let value = match self.single {
            Some(value) if self.next == 0 => Some(value),
            Some(_) => None,
            None => self.tuple.get(self.next),
        };
        self.next += 1;
        value.cloned().ok_or_else(|| raised("not enough arguments for format string"))
    }

    fn all_used(&self) -> bool {
        self.mapping.is_some()
            || self.next >= if self.single.is_some() { 1 } else { self.tuple.len() }
    }
}

#[derive(Default)]
struct Conversion {
    left: bool,
    plus: bool,
    space: bool,
    alternate: bool,
    zero: bool,
    width: usize,
    precision: Option<usize>,
}

struct Formatter<'a> {
    format: &'a Str,
    at: usize,
    values: Values<'a>,
    out: Builder,
}

impl Formatter<'_> {
    fn peek(&self) -> Option<char> {
        self.format.as_str()[self.at..].chars().next()
    }

    fn take(&mut self) -> Result<char> {
        let c = self.peek().ok_or_else(|| raised("incomplete format"))?;
        self.at += c.len_utf8();
        Ok(c)
    }

    fn run(&mut self) -> Result<()> {
        let text = self.format.as_str();
        while let Some(found) = text[self.at..].find('%') {
            self.out.push_part(self.format, self.at..self.at + found);
            self.at += found + 1;
            self.conversion()?;
            if self.out.is_full() {
                return Ok(());
            }
        }
        self.out.push_part(self.format, self.at..text.len());
        if !self.values.all_used() {
            return Err(raised("not all arguments converted during string formatting"));
        }
        Ok(())
    }

    fn conversion(&mut self) -> Result<()> {
        let mut named = None;
        if self.peek() == Some('%') {
            self.at += 1;
            self.out.push_str("%");
            return Ok(());
        }
        if self.peek() == Some('(') {
            named = Some(self.named()?);
        }
        let mut conversion = Conversion::default();
        while let Some(flag) = self.peek() {
            match flag {
                '-' => conversion.left = true,
                '+' => conversion.plus = true,
                ' ' => conversion.space = true,
                '#' => conversion.alternate = true,
                '0' => conversion.zero = true,
                _ => break,
            }
            self.at += 1;
        }
        if let Some(width) = self.number()? {
            conversion.left |= width < 0;
            conversion.width = usize::try_from(width.unsigned_abs()).unwrap_or(usize::MAX);
        }
        if self.peek() == Some('.') {
            self.at += 1;
            let precision = self.number()?.unwrap_or(0).max(0);
            conversion.precision = Some(usize::try_from(precision).unwrap_or(usize::MAX));
        }
        if matches!(self.peek(), Some('h' | 'l' | 'L')) {
            self.at += 1;
        }
        let kind = self.take()?;
        let value = match named {
            Some(value) => value,
            None => self.values.next()?,
        };
        self.convert(kind, &conversion, &value)
    }

    /// `(name)`: the value of the mapping.
    fn named(&mut self) -> Result<Value> {
        let Some(mapping) = self.values.mapping else {
            return Err(raised("format requires a mapping"));
        };
        let text = &self.format.as_str()[self.at..];
        let mut depth = 0;
        let end = text.char_indices().find(|(_, c)| {
            depth += i32::from(*c == '(') - i32::from(*c == ')');
            depth == 0
        });
        let Some((end, _)) = end else { return Err(raised("incomplete format key")) };
        let key = self.format.slice(self.at + 1..self.at + end);
        self.at += end + 1;
        match mapping {
            Value::Dict(dict) => match dict.get(&Value::Str(key.clone()))? {
                Some(value) => Ok(value.clone()),
                None => Err(raised(format!("KeyError: '{}'", key.as_str()))),
            },
            Value::Undefined(missing) => Err(missing.error()),
            _ => Err(raised("indices must be integers or slices, not str")),
        }
    }

    fn number(&mut self) -> Result<Option<i128>> {
        if self.peek() == Some('*') {
            self.at += 1;
            return match self.values.next()? {
                Value::Int(n) => Ok(Some(n)),
                Value::Bool(b) => Ok(Some(b.into())),
                _ => Err(raised("* wants int")),
            };
        }
        let begin = self.at;
        while matches!(self.peek(), Some('0'..='9')) {
            self.at += 1;
        }
        let digits = &self.format.as_str()[begin..self.at];
        if digits.is_empty() {
            return Ok(None);
        }
        Ok(Some(digits.parse().unwrap_or(i128::MAX)))
    }

    fn convert(&mut self, kind: char, how: &Conversion, value: &Value) -> Result<()> {
        match kind {
            's' | 'r' | 'a' => {
                let text = match kind {
                    's' => repr::to_str(value)?,
                    'r' => repr::repr(value)?,
                    _ => repr::ascii(value)?,
                };
                let cut = how.precision.map_or(text.len(), |precision| text.offset_of(precision));
                self.pad(how, "", &text.slice(0..cut), ' ');
                Ok(())
            }
            'c' => {
                let c = match value {
                    Value::Str(s) if s.num_chars() == 1 => s.clone(),
                    _ => match value.as_int() {
                        Some(n) => match u32::try_from(n).ok().and_then(char::from_u32) {
                            Some(c) => Str::template(c.to_string()),
                            None => return Err(raised("%c arg not in range(0x110000)")),
                        },
                        None => return Err(raised("%c requires int or char")),
                    },
                };
                self.pad(how, "", &c, ' ');
                Ok(())
            }
            'd' | 'i' | 'u' | 'o' | 'x' | 'X' => self.integer(kind, how, value),
            'e' | 'E' | 'f' | 'F' | 'g' | 'G' => self.float(kind, how, value),
            _ => Err(raised(format!("unsupported format character '{kind}'"))),
        }
    }

    fn integer(&mut self, kind: char, how: &Conversion, value: &Value) -> Result<()> {
        let n = match value {
            Value::Float(x) if matches!(kind, 'd' | 'i' | 'u') => integer::of_float(*x)?,
            Value::Undefined(missing) => return Err(missing.error()),
            _ => value.as_int().ok_or_else(|| {
                let given = value.type_name();
                raised(format!("%{kind} format: a real number is required, not {given}"))
            })?,
        };
        let magnitude = n.unsigned_abs();
        let (digits, prefix) = match kind {
            'o' => (format!("{magnitude:o}"), "0o"),
            'x' => (format!("{magnitude:x}"), "0x"),
            'X' => (format!("{magnitude:X}"), "0X"),
            _ => (magnitude.to_string(), ""),
        };
        let zeros = how.precision.unwrap_or(0).saturating_sub(digits.len());
        let mut number = Builder::default();
        number.pad('0', zeros);
        number.push_str(&digits);
        let mut sign = sign_of(n < 0, how).to_owned();
        if how.alternate {
            sign.push_str(prefix);
        }
        let fill = if how.zero && !how.left { '0' } else { ' ' };
        let number = number.finish()?;
        self.pad(how, &sign, &number, fill);
        Ok(())
    }

    fn float(&mut self, kind: char, how: &Conversion, value: &Value) -> Result<()> {
        let x = match value {
            Value::Float(x) => *x,
            Value::Undefined(missing) => return Err(missing.error()),
            _ => match value.as_int() {
                Some(n) => integer::to_float(n),
                None => {
                    let given = value.type_name();
                    return Err(raised(format!("must be real number, not {given}")));
                }
            },
        };
        let precision = how.precision.unwrap_or(6);
        if precision > 1_000_000 {
            return Err(super::text::too_long());
        }
        let lower = kind.to_ascii_lowercase();
        let mut text = if x.is_finite() {
            float::fixed(x.abs(), lower, precision, how.alternate)
        } else {
            float::non_finite(x.abs()).to_owned()
        };
        if kind.is_ascii_uppercase() {
            text = text.to_ascii_uppercase();
        }
        let negative = x.is_sign_negative() && !x.is_nan();
        let fill = if how.zero && !how.left { '0' } else { ' ' };
        self.pad(how, sign_of(negative, how), &Str::from(text.as_str()), fill);
        Ok(())
    }

    fn pad(&mut self, how: &Conversion, sign: &str, text: &Str, fill: char) {
        let spaces = how.width.saturating_sub(sign.len() + text.num_chars());
        if !how.left && fill == ' ' {
            self.out.pad(' ', spaces);
        }
        self.out.push_str(sign);
        if !how.left && fill != ' ' {
            self.out.pad(fill, spaces);
        }
        self.out.push(text);
        if how.left {
            self.out.pad(' ', spaces);
        }
    }
}

fn sign_of(negative: bool, how: &Conversion) -> &'static str {
    match (negative, how.plus, how.space) {
        (true, ..) => "-",
        (_, true, _) => "+",
        (_, _, true) => " ",
        _ => "",
    }
}
