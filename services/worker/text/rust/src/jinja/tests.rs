// SPDX-License-Identifier: Apache-2.0
//! Tests: `is …`.

use std::rc::Rc;

use super::{filters, Interpreter};
use crate::python::arguments::Arguments;
use crate::python::error::{raised, refused, Result};
use crate::python::operators::{self, compare, equal, Binary, Compare};
use crate::python::str_tests;
use crate::python::value::Value;

const NAMES: [&str; 39] = [
    "!=",
    "<",
    "<=",
    "==",
    ">",
    ">=",
    "boolean",
    "callable",
    "defined",
    "divisibleby",
    "eq",
    "equalto",
    "escaped",
    "even",
    "false",
    "filter",
    "float",
    "ge",
    "greaterthan",
    "gt",
    "in",
    "integer",
    "iterable",
    "le",
    "lessthan",
    "lower",
    "lt",
    "mapping",
    "ne",
    "none",
    "number",
    "odd",
    "sameas",
    "sequence",
    "string",
    "test",
    "true",
    "undefined",
    "upper",
];

pub fn exists(name: &str) -> bool {
    NAMES.contains(&name)
}

pub fn apply(
    interpreter: &mut Interpreter,
    name: &str,
    value: &Value,
    arguments: Arguments,
) -> Result<bool> {
    let comparison = match name {
        "==" | "eq" | "equalto" => Some(Compare::Eq),
        "!=" | "ne" => Some(Compare::Ne),
        ">" | "gt" | "greaterthan" => Some(Compare::Gt),
        ">=" | "ge" => Some(Compare::Ge),
        "<" | "lt" | "lessthan" => Some(Compare::Lt),
        "<=" | "le" => Some(Compare::Le),
        _ => None,
    };
    if let Some(comparison) = comparison {
        let other = arguments.bind("a comparison", &[""])?.required(0)?;
        return compare(comparison, value, &other);
    }
    match name {
        "divisibleby" => {
            let by = arguments.bind("divisibleby", &["num"])?.required(0)?;
            return equal(&operators::binary(Binary::Mod, value, &by)?, &Value::Int(0));
        }
        "in" => {
            let container = arguments.bind("in", &["seq"])?.required(0)?;
            return interpreter.contains(&container, value);
        }
        "sameas" => {
            let other = arguments.bind("sameas", &["other"])?.required(0)?;
            return same(value, &other);
        }
        _ => arguments.bind("a test", &[])?,
    };
    Ok(match name {
        "boolean" => matches!(value, Value::Bool(_)),
        "callable" => matches!(
            value,
            Value::Undefined(_)
                | Value::Method(_)
                | Value::Function(_)
                | Value::Macro(_)
                | Value::Loop(_)
                | Value::Joiner(_)
        ),
        "defined" => !value.is_undefined(),
        "undefined" => value.is_undefined(),
        "escaped" => value.as_str().is_some_and(|s| s.markup),
        "even" | "odd" => {
            let rest = operators::binary(Binary::Mod, value, &Value::Int(2))?;
            equal(&rest, &Value::Int((name == "odd").into()))?
        }
        "false" => matches!(value, Value::Bool(false)),
        "true" => matches!(value, Value::Bool(true)),
        "float" => matches!(value, Value::Float(_)),
        "integer" => matches!(value, Value::Int(_)),
        "number" => matches!(value, Value::Bool(_) | Value::Int(_) | Value::Float(_)),
        "none" => matches!(value, Value::None),
        "string" => matches!(value, Value::Str(_)),
        "mapping" => matches!(value, Value::Dict(_)),
        "sequence" => matches!(
            value,
            Value::Undefined(_)
                | Value::Str(_)
                | Value::List(_)
                | Value::Tuple(_)
                | Value::Dict(_)
                | Value::Range(_)
        ),
        "iterable" => matches!(
            value,
            Value::Undefined(_)
                | Value::Str(_)
                | Value::List(_)
                | Value::Tuple(_)
                | Value::Dict(_)
                | Value::View(..)
                | Value::Range(_)
                | Value::Iterator(_)
                | Value::Loop(_)
        ),
        "lower" | "upper" => {
            let text = interpreter.to_str(value)?;
            let test = if name == "lower" { "islower" } else { "isupper" };
            str_tests::test(text.as_str(), test).unwrap_or(false)
        }
        "filter" | "test" => match value {
            Value::Str(s) if name == "filter" => filters::exists(s.as_str()),
            Value::Str(s) => exists(s.as_str()),
            other => {
                crate::python::value::Key::of(other)?;
                false
            }
        },
        _ => return Err(raised(format!("No test named '{name}' found."))),
    })
}

/// `x is y` of Python, where that does not depend on how Python stores its values.
fn same(value: &Value, other: &Value) -> Result<bool> {
    Ok(match (value, other) {
        (Value::None, Value::None) => true,
        (Value::Bool(x), Value::Bool(y)) => x == y,
        (Value::Int(x), Value::Int(y)) if x != y => false,
        (Value::Int(x), Value::Int(_)) if (-5..=256).contains(x) => true,
        (Value::Str(x), Value::Str(y)) if x.as_str() != y.as_str() => false,
        (Value::Float(x), Value::Float(y)) if x != y && !x.is_nan() => false,
        (Value::Namespace(x), Value::Namespace(y)) => Rc::ptr_eq(x, y),
        (Value::Function(x), Value::Function(y)) => x == y,
        (Value::List(x), Value::List(y)) if Rc::ptr_eq(x, y) => true,
        (Value::Dict(x), Value::Dict(y)) if Rc::ptr_eq(x, y) => true,
        _ if std::mem::discriminant(value) != std::mem::discriminant(other) => false,
        (Value::List(_), Value::List(_)) | (Value::Dict(_), Value::Dict(_)) => false,
        _ => return Err(refused("sameas of equal values that are no singletons")),
    })
}
