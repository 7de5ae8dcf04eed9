// SPDX-License-Identifier: Apache-2.0
//! Python's integers, as far as 128 bits hold them.

use super::error::{raised, refused, Error, Result};
use super::str_tests::strip;
use super::value::Value;

pub fn too_large() -> Error {
    refused("an integer of more than 128 bits")
}

/// int(text, base), or nothing where that is a ValueError.
pub fn parse(text: &str, base: i128) -> Result<Option<i128>> {
    if base != 0 && !(2..=36).contains(&base) {
        return Ok(None);
    }
    let text = strip(text);
    if text.chars().any(|c| !c.is_ascii() && c.is_numeric()) {
        return Err(refused("a number with digits outside ASCII"));
    }
    let negative = text.starts_with('-');
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let prefixed = |letters: [&str; 2]| {
        letters.iter().find_map(|letter| unsigned.strip_prefix(&format!("0{letter}")))
    };
    let (digits, base) =
        match (base, prefixed(["x", "X"]), prefixed(["o", "O"]), prefixed(["b", "B"])) {
            (0 | 16, Some(digits), ..) => (digits.strip_prefix('_').unwrap_or(digits), 16),
            (0 | 8, _, Some(digits), _) => (digits.strip_prefix('_').unwrap_or(digits), 8),
            (0 | 2, _, _, Some(digits)) => (digits.strip_prefix('_').unwrap_or(digits), 2),
            (0, ..) => {
                let zeros = unsigned.bytes().all(|b| b == b'0' || b == b'_');
                if unsigned.starts_with('0') && !zeros {
                    return Ok(None);
                }
                (unsigned, 10)
            }
            (base, ..) => (unsigned, base as u32),
        };
    let mut value: Option<i128> = Some(0);
    let mut digit_before = false;
    for c in digits.chars() {
        if c == '_' && digit_before {
            digit_before = false;
            continue;
        }
        let Some(digit) = c.to_digit(base) else { return Ok(None) };
        digit_before = true;
        value = value.and_then(|v| v.checked_mul(base.into())?.checked_add(digit.into()));
    }
    if !digit_before {
        return Ok(None);
    }
    let value = value.ok_or_else(too_large)?;
    Ok(Some(if negative { -value } else { value }))
}

/// int(x) of a float.
pub fn of_float(x: f64) -> Result<i128> {
    if x.is_nan() {
        return Err(raised("cannot convert float NaN to integer"));
    }
    if x.is_infinite() {
        return Err(raised("cannot convert float infinity to integer"));
    }
    if x.abs() >= 1.7e38 {
        return Err(too_large());
    }
    Ok(x as i128)
}

/// x // y and x % y.
pub fn divide(x: i128, y: i128) -> Result<(i128, i128)> {
    if y == 0 {
        return Err(raised("integer division or modulo by zero"));
    }
    let quotient = x.checked_div(y).ok_or_else(too_large)?;
    let remainder = x.wrapping_rem(y);
    if remainder != 0 && (remainder < 0) != (y < 0) {
        return Ok((quotient - 1, remainder + y));
    }
    Ok((quotient, remainder))
}

pub fn power(x: i128, y: i128) -> Result<Value> {
    if y < 0 {
        if x == 0 {
            return Err(raised("0.0 cannot be raised to a negative power"));
        }
        return super::float::power(x as f64, y as f64).map(Value::Float);
    }
    let result = match x {
        0 if y > 0 => Some(0),
        0 | 1 => Some(1),
        -1 => Some(if y % 2 == 0 { 1 } else { -1 }),
        _ => u32::try_from(y).ok().and_then(|y| x.checked_pow(y)),
    };
    result.map(Value::Int).ok_or_else(too_large)
}

/// round(n, digits): ties to the even digit.
pub fn round(n: i128, digits: i128) -> Result<i128> {
    if digits >= 0 {
        return Ok(n);
    }
    let Some(unit) = u32::try_from(-digits).ok().and_then(|d| 10i128.checked_pow(d)) else {
        return Ok(0);
    };
    let (quotient, remainder) = divide(n, unit)?;
    let up = remainder > unit / 2 || (remainder == unit / 2 && quotient % 2 != 0);
    quotient.checked_add(up.into()).and_then(|q| q.checked_mul(unit)).ok_or_else(too_large)
}

/// The float next to an integer.
pub fn to_float(n: i128) -> f64 {
    n as f64
}

/// How an integer compares with a float that is not NaN.
pub fn compare(n: i128, x: f64) -> std::cmp::Ordering {
    use std::cmp::Ordering;
    if x >= 1.7e38 {
        return Ordering::Less;
    }
    if x <= -1.7e38 {
        return Ordering::Greater;
    }
    let whole = x.trunc();
    n.cmp(&(whole as i128)).then_with(|| {
        let fraction = x - whole;
        if fraction > 0.0 {
            Ordering::Less
        } else if fraction < 0.0 {
            Ordering::Greater
        } else {
            Ordering::Equal
        }
    })
}
