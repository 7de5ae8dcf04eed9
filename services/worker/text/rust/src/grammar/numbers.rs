// SPDX-License-Identifier: Apache-2.0
//! Numbers in schemas: llguidance reads them as doubles.

use std::collections::BTreeSet;

use serde_json::{Map, Number, Value};

use super::refusal::{refuse, refuse_at, Result};

/// Doubles have each integer up to here.
const MAX_EXACT: u64 = 1 << 53;

pub fn check_constant(value: &Value) -> Result<()> {
    match value {
        Value::Number(number) if !is_exact(number) => {
            refuse(format!("integers beyond {MAX_EXACT} are not supported"))
        }
        Value::Array(values) => values.iter().try_for_each(check_constant),
        Value::Object(members) => members.values().try_for_each(check_constant),
        _ => Ok(()),
    }
}

fn is_exact(number: &Number) -> bool {
    match (number.as_i64(), number.as_u64()) {
        (Some(integer), _) => integer.unsigned_abs() <= MAX_EXACT,
        (None, Some(_)) => false,
        (None, None) => number.as_f64().is_some_and(|float| float.abs() <= MAX_EXACT as f64),
    }
}

/// A bound that no double has becomes the next one inwards.
pub fn tighten(value: &mut Value, is_upper: bool) -> Result<()> {
    let Value::Number(number) = &value else { return refuse("not a number") };
    if is_exact(number) {
        return Ok(());
    }
    let far = MAX_EXACT as i64;
    match number.as_f64() {
        Some(float) if float > 0.0 && is_upper => *value = Value::from(far),
        Some(float) if float < 0.0 && !is_upper => *value = Value::from(-far),
        _ => return refuse(format!("a bound beyond {MAX_EXACT} is not supported")),
    }
    Ok(())
}

/// llguidance lets an excluded end of an interval through where the end is an integer and the other
/// end has the same integer part. There, or where that cannot be seen here, the end is moved inwards a
/// billionth.
pub fn exclude_ends(object: &mut Map<String, Value>, merges: bool) {
    for (exclusive, inclusive, others, inwards) in [
        ("exclusiveMinimum", "minimum", ["maximum", "exclusiveMaximum"], 1.0),
        ("exclusiveMaximum", "maximum", ["minimum", "exclusiveMinimum"], -1.0),
    ] {
        let end = match object.get(exclusive) {
            Some(Value::Bool(true)) => object.get(inclusive),
            other => other,
        };
        let Some(end) = end.and_then(Value::as_f64).filter(|end| end.fract() == 0.0) else {
            continue;
        };
        let bounds = others.iter().filter_map(|name| object.get(*name)?.as_f64());
        let is_far = |other: f64| (other - end) * inwards >= 1.0;
        if !merges && bounds.clone().all(is_far) {
            continue;
        }
        let near = end + 1e-9 * inwards;
        let next = if inwards > 0.0 { end.next_up() } else { end.next_down() };
        let moved = if (near - end) * inwards > 0.0 { near } else { next };
        let given = object.get(inclusive).and_then(Value::as_f64).unwrap_or(moved);
        let inner = if (given - moved) * inwards > 0.0 { given } else { moved };
        object.remove(exclusive);
        object.insert(inclusive.to_owned(), Value::from(inner));
    }
}

pub fn check_multiple(value: &Value) -> Result<()> {
    match value.as_f64() {
        Some(float) if float > 0.0 && decimal_of(value).is_some() => Ok(()),
        Some(float) if float > 0.0 => refuse("more than nine digits are not supported"),
        _ => refuse("not a number above 0"),
    }
}

/// Digits, and how many of them are behind the point. llguidance multiplies by ten, in doubles, until
/// an integer is left.
fn decimal_of(value: &Value) -> Option<(u64, u32)> {
    let mut float = value.as_f64()?;
    for digits in 0..=9 {
        if float.fract() == 0.0 {
            return (float <= 999_999_999.0).then_some((float as u64, digits));
        }
        float *= 10.0;
    }
    None
}

/// llguidance makes the least common multiple of several that apply to one number in 32 bits,
/// unchecked.
pub fn check_multiples(multiples: &BTreeSet<String>) -> Result<()> {
    let values = multiples.iter().filter_map(|text| serde_json::from_str(text).ok());
    let decimals: Vec<(u64, u32)> = values.filter_map(|value: Value| decimal_of(&value)).collect();
    let most = decimals.iter().map(|decimal| decimal.1).max().unwrap_or(0);
    let product = decimals.iter().try_fold(1u64, |product, (digits, behind)| {
        product.checked_mul(*digits)?.checked_mul(10u64.pow(most - behind))
    });
    match product {
        Some(product) if decimals.len() < 2 || product <= u32::MAX.into() => Ok(()),
        _ => {
            let why = "all different ones multiplied are more than 32 bits";
            refuse_at("multipleOf", "more than one place", why)
        }
    }
}
