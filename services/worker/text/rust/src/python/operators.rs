// SPDX-License-Identifier: Apache-2.0
//! Python's operators.

use std::cmp::Ordering;
use std::rc::Rc;

use super::error::{charge, charge_bytes, raised, refused, Error, Result};
use super::text::{Builder, Str};
use super::value::{Dict, Range, Value, View, MAX_ITEMS};
use super::{float, integer, percent};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binary {
    Add,
    Sub,
    Mul,
    Div,
    FloorDiv,
    Mod,
    Pow,
}

impl Binary {
    fn sign(self) -> &'static str {
        match self {
            Binary::Add => "+",
            Binary::Sub => "-",
            Binary::Mul => "*",
            Binary::Div => "/",
            Binary::FloorDiv => "//",
            Binary::Mod => "%",
            Binary::Pow => "** or pow()",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compare {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    In,
    NotIn,
}

pub fn binary(operator: Binary, left: &Value, right: &Value) -> Result<Value> {
    if let (Binary::Mod, Value::Str(format)) = (operator, left) {
        return percent::format(format, right).map(Value::Str);
    }
    if let Value::Undefined(missing) = left {
        return Err(missing.error());
    }
    if let (Binary::Sub, Value::View(..)) = (operator, left) {
        return Err(refused("a set"));
    }
    if let Value::Undefined(missing) = right {
        return Err(missing.error());
    }
    match (left, right) {
        (Value::Bool(_) | Value::Int(_), Value::Bool(_) | Value::Int(_)) => {
            integers(operator, left.as_int().unwrap_or(0), right.as_int().unwrap_or(0))
        }
        (Value::Float(_) | Value::Int(_) | Value::Bool(_), Value::Float(_))
        | (Value::Float(_), Value::Int(_) | Value::Bool(_)) => {
            floats(operator, as_float(left), as_float(right)).map(Value::Float)
        }
        _ => match operator {
            Binary::Add => add(left, right),
            Binary::Mul => match (left.as_int(), right.as_int()) {
                (None, Some(times)) => repeat(left, times),
                (Some(times), None) => repeat(right, times),
                _ => None,
            }
            .transpose(),
            _ => Ok(None),
        }?
        .ok_or_else(|| unsupported(operator, left, right)),
    }
}

fn unsupported(operator: Binary, left: &Value, right: &Value) -> Error {
    if let (Binary::Sub, Value::View(..), _) | (Binary::Sub, _, Value::View(..)) =
        (operator, left, right)
    {
        return refused("a set");
    }
    let (left, right) = (left.type_name(), right.type_name());
    raised(format!("unsupported operand type(s) for {}: '{left}' and '{right}'", operator.sign()))
}

fn as_float(value: &Value) -> f64 {
    match value {
        Value::Float(x) => *x,
        _ => integer::to_float(value.as_int().unwrap_or(0)),
    }
}

fn integers(operator: Binary, x: i128, y: i128) -> Result<Value> {
    let result = match operator {
        Binary::Add => x.checked_add(y),
        Binary::Sub => x.checked_sub(y),
        Binary::Mul => x.checked_mul(y),
        Binary::FloorDiv => Some(integer::divide(x, y)?.0),
        Binary::Mod => Some(integer::divide(x, y)?.1),
        Binary::Pow => return integer::power(x, y),
        Binary::Div => {
            if y == 0 {
                return Err(raised("division by zero"));
            }
            const EXACT: u128 = 1 << 53;
            if x.unsigned_abs() > EXACT || y.unsigned_abs() > EXACT {
                return Err(refused("the division of integers beyond 2**53"));
            }
            return Ok(Value::Float(x as f64 / y as f64));
        }
    };
    result.map(Value::Int).ok_or_else(integer::too_large)
}

fn floats(operator: Binary, x: f64, y: f64) -> Result<f64> {
    Ok(match operator {
        Binary::Add => x + y,
        Binary::Sub => x - y,
        Binary::Mul => x * y,
        Binary::Div if y == 0.0 => return Err(raised("float division by zero")),
        Binary::Div => x / y,
        Binary::FloorDiv => float::divide(x, y)?.0,
        Binary::Mod => float::divide(x, y)?.1,
        Binary::Pow => float::power(x, y)?,
    })
}

fn add(left: &Value, right: &Value) -> Result<Option<Value>> {
    Ok(Some(match (left, right) {
        (Value::Str(x), Value::Str(y)) => {
            let markup = x.markup || y.markup;
            let part = |s: &Str| if markup { escape(s) } else { Ok(s.clone()) };
            let mut out = Builder::default();
            out.push(&part(x)?);
            out.push(&part(y)?);
            Value::Str(out.finish()?.with_markup(markup))
        }
        (Value::List(x), Value::List(y)) => {
            Value::list(x.items.iter().chain(&y.items).cloned().collect())?
        }
        (Value::Tuple(x), Value::Tuple(y)) => {
            Value::tuple(x.items.iter().chain(&y.items).cloned().collect())?
        }
        _ => return Ok(None),
    }))
}

/// markupsafe's escape of a string: a Markup stays as it is.
pub fn escape(s: &Str) -> Result<Str> {
    if s.markup {
        return Ok(s.clone());
    }
    charge_bytes(s.len())?;
    let escaped = s.map(|c, out| match c {
        '&' => out.push_str("&amp;"),
        '<' => out.push_str("&lt;"),
        '>' => out.push_str("&gt;"),
        '"' => out.push_str("&#34;"),
        '\'' => out.push_str("&#39;"),
        c => out.push(c),
    })?;
    Ok(escaped.with_markup(true))
}

fn repeat(value: &Value, times: i128) -> Option<Result<Value>> {
    let times = usize::try_from(times.max(0)).unwrap_or(usize::MAX);
    match value {
        Value::Str(s) => Some(repeat_str(s, times).map(Value::Str)),
        Value::List(list) => Some(repeat_items(&list.items, times).and_then(Value::list)),
        Value::Tuple(list) => Some(repeat_items(&list.items, times).and_then(Value::tuple)),
        _ => None,
    }
}

/// By doubling, so that many repetitions of little are few steps.
fn repeat_str(s: &Str, mut times: usize) -> Result<Str> {
    let mut out = Builder::default();
    let mut unit = s.clone();
    while times > 0 && !s.is_empty() {
        if times % 2 == 1 {
            out.push(&unit);
        }
        times /= 2;
        if times > 0 {
            let mut double = Builder::default();
            double.push(&unit);
            double.push(&unit);
            unit = double.finish()?;
        }
    }
    Ok(out.finish()?.with_markup(s.markup))
}

fn repeat_items(items: &[Value], times: usize) -> Result<Vec<Value>> {
    let total = items.len().saturating_mul(times);
    if total > MAX_ITEMS {
        return Err(raised(format!("it takes more than {MAX_ITEMS} items")));
    }
    charge(total)?;
    Ok(items.iter().cycle().take(total).cloned().collect())
}

pub fn negative(value: &Value) -> Result<Value> {
    match value {
        Value::Undefined(missing) => Err(missing.error()),
        Value::Float(x) => Ok(Value::Float(-x)),
        _ => match value.as_int() {
            Some(n) => n.checked_neg().map(Value::Int).ok_or_else(integer::too_large),
            None => Err(raised(format!("bad operand type for unary -: '{}'", value.type_name()))),
        },
    }
}

pub fn positive(value: &Value) -> Result<Value> {
    match value {
        Value::Undefined(missing) => Err(missing.error()),
        Value::Float(x) => Ok(Value::Float(*x)),
        _ => match value.as_int() {
            Some(n) => Ok(Value::Int(n)),
            None => Err(raised(format!("bad operand type for unary +: '{}'", value.type_name()))),
        },
    }
}

pub fn equal(left: &Value, right: &Value) -> Result<bool> {
    charge(1)?;
    Ok(match (left, right) {
        (Value::Undefined(_), Value::Undefined(_)) | (Value::None, Value::None) => true,
        (Value::Str(x), Value::Str(y)) => {
            charge(x.len().min(y.len()) / 256)?;
            x.as_str() == y.as_str()
        }
        (Value::Float(x), Value::Float(y)) => x == y,
        (Value::Float(x), n) | (n, Value::Float(x)) if n.as_int().is_some() => {
            !x.is_nan() && integer::compare(n.as_int().unwrap_or(0), *x) == Ordering::Equal
        }
        (Value::List(x), Value::List(y)) | (Value::Tuple(x), Value::Tuple(y)) => {
            if Rc::ptr_eq(x, y) {
                return Ok(true);
            }
            if x.items.len() != y.items.len() {
                return Ok(false);
            }
            for (x, y) in x.items.iter().zip(&y.items) {
                if !equal(x, y)? {
                    return Ok(false);
                }
            }
            true
        }
        (Value::Dict(x), Value::Dict(y)) => Rc::ptr_eq(x, y) || equal_dicts(x, y)?,
        (Value::View(View::Values, _), _) | (_, Value::View(View::Values, _)) => false,
        (Value::View(view, x), Value::View(other, y)) => {
            view == other
                && match view {
                    View::Keys => x.len() == y.len() && has_keys(x, y)?,
                    _ => equal_dicts(x, y)?,
                }
        }
        (Value::Range(x), Value::Range(y)) => equal_ranges(*x, *y),
        (Value::Iterator(x), Value::Iterator(y)) => Rc::ptr_eq(x, y),
        (Value::Namespace(x), Value::Namespace(y)) => Rc::ptr_eq(x, y),
        (Value::Cycler(x), Value::Cycler(y)) => Rc::ptr_eq(x, y),
        (Value::Joiner(x), Value::Joiner(y)) => Rc::ptr_eq(x, y),
        (Value::Loop(x), Value::Loop(y)) => Rc::ptr_eq(x, y),
        (Value::Macro(x), Value::Macro(y)) => Rc::ptr_eq(x, y),
        (Value::Method(_), Value::Method(_)) => return Err(refused("comparing methods")),
        (Value::Function(x), Value::Function(y)) => x == y,
        _ => match (left.as_int(), right.as_int()) {
            (Some(x), Some(y)) => x == y,
            _ => false,
        },
    })
}

fn has_keys(of: &Dict, other: &Dict) -> Result<bool> {
    for (key, _) in of.entries() {
        if other.get(key)?.is_none() {
            return Ok(false);
        }
    }
    Ok(true)
}

fn equal_dicts(x: &Dict, y: &Dict) -> Result<bool> {
    if x.len() != y.len() {
        return Ok(false);
    }
    for (key, value) in x.entries() {
        match y.get(key)? {
            Some(other) if equal(value, other)? => {}
            _ => return Ok(false),
        }
    }
    Ok(true)
}

fn equal_ranges(x: Range, y: Range) -> bool {
    x.len() == y.len() && (x.len() == 0 || x.start == y.start) && (x.len() < 2 || x.step == y.step)
}

/// How two values are ordered; nothing for a NaN. A TypeError where Python has no order.
pub fn order(left: &Value, right: &Value, sign: &str) -> Result<Option<Ordering>> {
    charge(1)?;
    match (left, right) {
        (Value::Undefined(missing), _) | (_, Value::Undefined(missing)) => Err(missing.error()),
        (Value::Str(x), Value::Str(y)) => {
            charge(x.len().min(y.len()) / 256)?;
            Ok(Some(x.as_str().cmp(y.as_str())))
        }
        (Value::Float(x), Value::Float(y)) => Ok(x.partial_cmp(y)),
        (Value::Float(x), n) if n.as_int().is_some() => {
            Ok((!x.is_nan()).then(|| integer::compare(n.as_int().unwrap_or(0), *x).reverse()))
        }
        (n, Value::Float(x)) if n.as_int().is_some() => {
            Ok((!x.is_nan()).then(|| integer::compare(n.as_int().unwrap_or(0), *x)))
        }
        (Value::List(x), Value::List(y)) | (Value::Tuple(x), Value::Tuple(y)) => {
            for (x, y) in x.items.iter().zip(&y.items) {
                if !equal(x, y)? {
                    return order(x, y, sign);
                }
            }
            Ok(Some(x.items.len().cmp(&y.items.len())))
        }
        (Value::View(View::Keys | View::Items, _), Value::View(View::Keys | View::Items, _)) => {
            Err(refused("comparing views of dictionaries as sets"))
        }
        _ => match (left.as_int(), right.as_int()) {
            (Some(x), Some(y)) => Ok(Some(x.cmp(&y))),
            _ => Err(raised(format!(
                "'{sign}' not supported between instances of '{}' and '{}'",
                left.type_name(),
                right.type_name()
            ))),
        },
    }
}

pub fn less(left: &Value, right: &Value) -> Result<bool> {
    Ok(order(left, right, "<")? == Some(Ordering::Less))
}

/// All comparisons but `in`.
pub fn compare(operator: Compare, left: &Value, right: &Value) -> Result<bool> {
    use Ordering::{Equal, Greater, Less};
    Ok(match operator {
        Compare::Eq => equal(left, right)?,
        Compare::Ne => !equal(left, right)?,
        Compare::Lt => order(left, right, "<")? == Some(Less),
        Compare::Le => matches!(order(left, right, "<=")?, Some(Less | Equal)),
        Compare::Gt => order(left, right, ">")? == Some(Greater),
        Compare::Ge => matches!(order(left, right, ">=")?, Some(Greater | Equal)),
        Compare::In | Compare::NotIn => return Err(raised("`in` is no comparison of this kind")),
    })
}

/// `item in container`, for containers that are no iterators.
pub fn contains(container: &Value, item: &Value) -> Result<bool> {
    match container {
        Value::Str(text) => match item {
            Value::Str(part) => {
                charge_bytes(text.len())?;
                Ok(text.as_str().contains(part.as_str()))
            }
            _ => Err(raised(format!(
                "'in <string>' requires string as left operand, not {}",
                item.type_name()
            ))),
        },
        Value::List(list) | Value::Tuple(list) => contains_item(&list.items, item),
        Value::Dict(dict) | Value::View(View::Keys, dict) => Ok(dict.get(item)?.is_some()),
        Value::View(View::Values, dict) => {
            for (_, value) in dict.entries() {
                if equal(value, item)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        Value::View(View::Items, dict) => match item {
            Value::Tuple(pair) if pair.items.len() == 2 => match dict.get(&pair.items[0])? {
                Some(value) => equal(value, &pair.items[1]),
                None => Ok(false),
            },
            _ => Ok(false),
        },
        Value::Range(range) => Ok(match item {
            Value::Float(x) if x.fract() == 0.0 && x.abs() < 1e38 => {
                range.index_of(*x as i128).is_some()
            }
            _ => item.as_int().is_some_and(|n| range.index_of(n).is_some()),
        }),
        Value::Undefined(_) => Ok(false),
        _ => Err(raised(format!("argument of type '{}' is not iterable", container.type_name()))),
    }
}

pub fn contains_item(items: &[Value], item: &Value) -> Result<bool> {
    for value in items {
        if equal(value, item)? {
            return Ok(true);
        }
    }
    Ok(false)
}
