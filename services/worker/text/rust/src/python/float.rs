// SPDX-License-Identifier: Apache-2.0
//! Python's floats: printing, reading and rounding.

use super::error::{raised, refused, Result};

/// The shortest digits that read back the same, with an exponent from 1e16 on and below 1e-4.
pub fn repr(x: f64) -> String {
    if !x.is_finite() {
        return non_finite(x).to_owned();
    }
    if x == 0.0 || (1e-4..1e16).contains(&x.abs()) {
        let text = format!("{x:?}");
        let decimals = text.split_once('.').map_or(0, |(_, digits)| digits.len());
        return even_of_two(x, format!("{x:.decimals$}"), text);
    }
    let text = format!("{x:e}");
    let digits = text.split_once('e').map_or("", |(digits, _)| digits);
    let decimals = digits.split_once('.').map_or(0, |(_, digits)| digits.len());
    exponent_of_python(&even_of_two(x, format!("{x:.decimals$e}"), text))
}

/// Of two shortest texts that are equally near, Python takes the even one, which rounding to as many
/// digits finds; Rust's shortest text is the upper one.
fn even_of_two(x: f64, rounded: String, shortest: String) -> String {
    if rounded.parse() == Ok(x) {
        rounded
    } else {
        shortest
    }
}

pub fn non_finite(x: f64) -> &'static str {
    match x {
        x if x.is_nan() => "nan",
        x if x > 0.0 => "inf",
        _ => "-inf",
    }
}

/// 1e5 to 1e+05.
pub fn exponent_of_python(scientific: &str) -> String {
    let (digits, exponent) = scientific.split_once('e').unwrap_or((scientific, "0"));
    match exponent.strip_prefix('-') {
        Some(exponent) => format!("{digits}e-{exponent:0>2}"),
        None => format!("{digits}e+{exponent:0>2}"),
    }
}

/// `%e`, `%f` or `%g` of a finite number that is not negative. `alternate` keeps the point and zeros.
pub fn fixed(x: f64, kind: char, precision: usize, alternate: bool) -> String {
    match kind {
        'e' => {
            let mut text = exponent_of_python(&format!("{x:.precision$e}"));
            if alternate && precision == 0 {
                text = text.replacen('e', ".e", 1);
            }
            text
        }
        'f' => {
            let mut text = format!("{x:.precision$}");
            if alternate && precision == 0 {
                text.push('.');
            }
            text
        }
        _ => general(x, precision, alternate, false),
    }
}

/// `%g`. With `point` it has at least one digit behind the point, as repr() has.
pub fn general(x: f64, precision: usize, alternate: bool, point: bool) -> String {
    let precision = precision.max(1);
    let scientific = format!("{x:.*e}", precision - 1);
    let exponent: i64 =
        scientific.split_once('e').and_then(|(_, exponent)| exponent.parse().ok()).unwrap_or(0);
    let limit = precision as i64 - i64::from(point);
    if exponent < -4 || exponent >= limit.max(if point { 0 } else { 1 }) {
        let text = exponent_of_python(&scientific);
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "+00"));
        let digits = if alternate { with_point(digits) } else { without_zeros(digits) };
        return format!("{digits}e{exponent}");
    }
    let decimals = (precision as i64 - 1 - exponent).max(0) as usize;
    let text = format!("{x:.decimals$}");
    let text = if alternate { with_point(&text) } else { without_zeros(&text) };
    if point && !text.contains('.') {
        return format!("{text}.0");
    }
    text
}

fn with_point(digits: &str) -> String {
    if digits.contains('.') {
        return digits.to_owned();
    }
    format!("{digits}.")
}

fn without_zeros(digits: &str) -> String {
    if !digits.contains('.') {
        return digits.to_owned();
    }
    digits.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// float(text), or nothing where that is a ValueError.
pub fn parse(text: &str) -> Result<Option<f64>> {
    let text = super::str_tests::strip(text);
    if text.chars().any(|c| !c.is_ascii() && c.is_numeric()) {
        return Err(refused("a number with digits outside ASCII"));
    }
    let lower = text.to_ascii_lowercase();
    let unsigned = lower.strip_prefix(['+', '-']).unwrap_or(&lower);
    let negative = lower.starts_with('-');
    let value = match unsigned {
        "inf" | "infinity" => f64::INFINITY,
        "nan" => f64::NAN,
        _ => {
            let bytes = unsigned.as_bytes();
            let allowed = |b: &u8| b.is_ascii_digit() || b"._e+-".contains(b);
            if bytes.is_empty() || !bytes.iter().all(allowed) {
                return Ok(None);
            }
            // An underscore stands between two digits.
            for (at, _) in unsigned.match_indices('_') {
                let digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
                if at == 0 || !digit(at - 1) || !digit(at + 1) {
                    return Ok(None);
                }
            }
            if !bytes[0].is_ascii_digit() && bytes[0] != b'.' {
                return Ok(None);
            }
            match unsigned.replace('_', "").parse::<f64>() {
                Ok(value) => value,
                Err(_) => return Ok(None),
            }
        }
    };
    Ok(Some(if negative { -value } else { value }))
}

/// round(x, digits): to the nearest, ties of the exact value to the even digit.
pub fn round(x: f64, digits: i128) -> Result<f64> {
    if !x.is_finite() || digits > 330 {
        return Ok(x);
    }
    if digits < -330 {
        return Ok(0.0f64.copysign(x));
    }
    let rounded = if digits >= 0 {
        format!("{x:.*}", digits as usize).parse::<f64>().unwrap_or(f64::NAN)
    } else {
        let places = (-digits) as usize;
        // All decimals of a float, so that ties are seen as such.
        let text = format!("{:.1074}", x.abs());
        let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
        let padded = format!("{whole:0>width$}", width = places + 1);
        let (kept, cut) = padded.split_at(padded.len() - places);
        let half = format!("{:0<places$}", "5");
        let rest = fraction.bytes().any(|b| b != b'0');
        let odd = kept.bytes().last().is_some_and(|b| b % 2 == 1);
        let up = cut > half.as_str() || (cut == half && (rest || odd));
        let mut number: f64 = format!("{kept}e{places}").parse().unwrap_or(f64::NAN);
        if up {
            let kept = kept.parse::<u128>().map_err(|_| refused("rounding a large float"))? + 1;
            number = format!("{kept}e{places}").parse().unwrap_or(f64::NAN);
        }
        number.copysign(x)
    };
    if rounded.is_infinite() {
        return Err(raised("rounded value too large to represent"));
    }
    Ok(rounded)
}

/// x // y and x % y.
pub fn divide(x: f64, y: f64) -> Result<(f64, f64)> {
    if y == 0.0 {
        return Err(raised("float floor division by zero"));
    }
    let mut modulo = x % y;
    let mut quotient = (x - modulo) / y;
    if modulo != 0.0 {
        if (y < 0.0) != (modulo < 0.0) {
            modulo += y;
            quotient -= 1.0;
        }
    } else {
        modulo = 0.0f64.copysign(y);
    }
    let floor = if quotient != 0.0 {
        let floor = quotient.floor();
        if quotient - floor > 0.5 {
            floor + 1.0
        } else {
            floor
        }
    } else {
        0.0f64.copysign(x / y)
    };
    Ok((floor, modulo))
}

pub fn power(x: f64, y: f64) -> Result<f64> {
    if x == 0.0 && y < 0.0 {
        return Err(raised("0.0 cannot be raised to a negative power"));
    }
    if x < 0.0 && x.is_finite() && y.is_finite() && y.fract() != 0.0 {
        return Err(refused("a complex number"));
    }
    let result = x.powf(y);
    if result.is_infinite() && x.is_finite() && y.is_finite() {
        return Err(raised("(34, 'Numerical result out of range')"));
    }
    Ok(result)
}
