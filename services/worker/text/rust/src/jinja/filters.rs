// SPDX-License-Identifier: Apache-2.0
//! Filters: their names, and those of single values.

use super::{generators, list_filters, text_filters, Interpreter};
use crate::python::arguments::Arguments;
use crate::python::attributes;
use crate::python::error::{raised, refused, Result};
use crate::python::operators::{self, Binary};
use crate::python::repr;
use crate::python::text::Str;
use crate::python::value::Value;
use crate::python::{float, integer, json, percent};

pub const NAMES: [&str; 54] = [
    "abs",
    "attr",
    "batch",
    "capitalize",
    "center",
    "count",
    "d",
    "default",
    "dictsort",
    "e",
    "escape",
    "filesizeformat",
    "first",
    "float",
    "forceescape",
    "format",
    "groupby",
    "indent",
    "int",
    "items",
    "join",
    "last",
    "length",
    "list",
    "lower",
    "map",
    "max",
    "min",
    "pprint",
    "random",
    "reject",
    "rejectattr",
    "replace",
    "reverse",
    "round",
    "safe",
    "select",
    "selectattr",
    "slice",
    "sort",
    "string",
    "striptags",
    "sum",
    "title",
    "tojson",
    "trim",
    "truncate",
    "unique",
    "upper",
    "urlencode",
    "urlize",
    "wordcount",
    "wordwrap",
    "xmlattr",
];

pub fn exists(name: &str) -> bool {
    NAMES.contains(&name)
}

pub fn apply(
    interpreter: &mut Interpreter,
    name: &str,
    value: Value,
    arguments: Arguments,
) -> Result<Value> {
    match name {
        "pprint" | "urlize" | "wordwrap" => Err(refused(format!("the filter {name}"))),
        "random" => Err(refused("the filter random, whose result is no function of the request,")),
        "abs" => {
            arguments.bind("abs", &[])?;
            match &value {
                Value::Float(x) => Ok(Value::Float(x.abs())),
                Value::Undefined(missing) => Err(missing.error()),
                _ => match value.as_int() {
                    Some(n) => n.checked_abs().map(Value::Int).ok_or_else(integer::too_large),
                    None => {
                        let kind = value.type_name();
                        Err(raised(format!("bad operand type for abs(): '{kind}'")))
                    }
                },
            }
        }
        "attr" => {
            let name = arguments.bind("attr", &["name"])?.required_str(0)?;
            match &value {
                Value::Loop(_) => interpreter.attribute(&value, name.as_str()),
                _ => attributes::only_attribute(&value, name.as_str()),
            }
        }
        "d" | "default" => {
            let mut bound = arguments.bind("default", &["default_value", "boolean"])?;
            let default = bound.take(0).unwrap_or_else(|| Value::str(""));
            let replaced = value.is_undefined() || (bound.is_true(1, false) && !value.is_true());
            Ok(if replaced { default } else { value })
        }
        "e" | "escape" => {
            arguments.bind("escape", &[])?;
            operators::escape(&repr::to_soft_str(&value)?).map(Value::Str)
        }
        "forceescape" => {
            arguments.bind("forceescape", &[])?;
            operators::escape(&repr::to_str(&value)?).map(Value::Str)
        }
        "safe" => {
            arguments.bind("safe", &[])?;
            Ok(Value::Str(interpreter.to_str(&value)?.with_markup(true)))
        }
        "string" => {
            arguments.bind("string", &[])?;
            match value {
                Value::Str(_) => Ok(value),
                value => interpreter.to_str(&value).map(Value::Str),
            }
        }
        "float" => {
            let default = arguments.bind("float", &["default"])?.take(0);
            let default = default.unwrap_or(Value::Float(0.0));
            Ok(to_float(&value)?.map_or(default, Value::Float))
        }
        "int" => to_int(&value, arguments),
        "round" => round(&value, arguments),
        "filesizeformat" => file_size(&value, arguments),
        "count" | "length" => {
            arguments.bind("length", &[])?;
            if let Value::Loop(of) = &value {
                return of.length(interpreter).map(|n| Value::Int(n as i128));
            }
            match value.length()? {
                Some(n) => Ok(Value::Int(n as i128)),
                None => {
                    let kind = value.type_name();
                    Err(raised(format!("object of type '{kind}' has no len()")))
                }
            }
        }
        "tojson" => json::tojson(&value, arguments),
        "format" => {
            let text = repr::to_soft_str(&value)?;
            let Arguments { positional, named } = arguments;
            if !positional.is_empty() && !named.is_empty() {
                return Err(raised("can't handle positional and keyword arguments at once"));
            }
            let values = match named.is_empty() {
                true => Value::tuple(positional)?,
                false => {
                    let entries = named.into_iter().map(|(key, value)| (Value::Str(key), value));
                    Value::Dict(crate::python::value::Dict::new(entries)?)
                }
            };
            percent::format(&text, &values).map(Value::Str)
        }
        "batch" | "slice" | "items" | "map" | "select" | "reject" | "selectattr" | "rejectattr"
        | "unique" => generators::filter(name, value, arguments),
        "dictsort" | "first" | "last" | "groupby" | "join" | "list" | "max" | "min" | "reverse"
        | "sort" | "sum" => list_filters::apply(interpreter, name, value, arguments),
        _ if exists(name) => text_filters::apply(interpreter, name, value, arguments),
        _ => Err(raised(format!("No filter named '{name}' found."))),
    }
}

/// float(value), or nothing where that is a TypeError or a ValueError.
pub fn to_float(value: &Value) -> Result<Option<f64>> {
    match value {
        Value::Undefined(missing) => Err(missing.error()),
        Value::Float(x) => Ok(Some(*x)),
        Value::Str(s) => float::parse(s.as_str()),
        _ => Ok(value.as_int().map(integer::to_float)),
    }
}

fn to_int(value: &Value, arguments: Arguments) -> Result<Value> {
    let mut bound = arguments.bind("int", &["default", "base"])?;
    let default = bound.take(0).unwrap_or(Value::Int(0));
    let base = bound.take(1).unwrap_or(Value::Int(10));
    let parsed = match value {
        Value::Undefined(missing) => return Err(missing.error()),
        Value::Str(s) => match base.as_int() {
            Some(base) => integer::parse(s.as_str(), base)?,
            None => None,
        },
        Value::Float(x) if x.is_nan() => None,
        Value::Float(x) => Some(integer::of_float(*x)?),
        _ => value.as_int(),
    };
    if let Some(n) = parsed {
        return Ok(Value::Int(n));
    }
    match to_float(value)? {
        Some(x) if x.is_finite() => integer::of_float(x).map(Value::Int),
        _ => Ok(default),
    }
}

fn round(value: &Value, arguments: Arguments) -> Result<Value> {
    let mut bound = arguments.bind("round", &["precision", "method"])?;
    let precision = bound.take(0).unwrap_or(Value::Int(0));
    let method = bound.take(1).unwrap_or_else(|| Value::str("common"));
    let method = match &method {
        Value::Str(s) if ["common", "ceil", "floor"].contains(&s.as_str()) => s.as_str().to_owned(),
        _ => return Err(raised("method must be common, ceil or floor")),
    };
    if let Value::Undefined(missing) = value {
        return Err(missing.error());
    }
    if !matches!(value, Value::Float(_) | Value::Int(_) | Value::Bool(_)) {
        let kind = value.type_name();
        return Err(raised(format!("type {kind} doesn't define __round__ method")));
    }
    if method == "common" {
        return match (value, &precision) {
            (Value::Float(x), Value::None) => {
                integer::of_float(float::round(*x, 0)?).map(Value::Int)
            }
            (Value::Float(x), digits) => match digits.as_int() {
                Some(digits) => float::round(*x, digits).map(Value::Float),
                None => Err(raised("round: precision is an integer")),
            },
            (_, Value::None) => Ok(Value::Int(value.as_int().unwrap_or(0))),
            (_, digits) => match digits.as_int() {
                Some(digits) => integer::round(value.as_int().unwrap_or(0), digits).map(Value::Int),
                None => Err(raised("round: precision is an integer")),
            },
        };
    }
    let scale = operators::binary(Binary::Pow, &Value::Int(10), &precision)?;
    let scaled = operators::binary(Binary::Mul, value, &scale)?;
    let whole = match scaled {
        Value::Float(x) if method == "ceil" => integer::of_float(x.ceil())?,
        Value::Float(x) => integer::of_float(x.floor())?,
        n => n.as_int().unwrap_or(0),
    };
    operators::binary(Binary::Div, &Value::Int(whole), &scale)
}

fn file_size(value: &Value, arguments: Arguments) -> Result<Value> {
    let binary = arguments.bind("filesizeformat", &["binary"])?.is_true(0, false);
    let Some(bytes) = to_float(value)? else {
        return Err(raised("could not convert to float"));
    };
    let (base, suffix) = if binary { (1024.0, "iB") } else { (1000.0, "B") };
    let text = if bytes == 1.0 {
        "1 Byte".to_owned()
    } else if bytes < base {
        format!("{} Bytes", integer::of_float(bytes)?)
    } else if bytes.is_nan() {
        return Err(refused("the size of a file that is no number"));
    } else {
        let letters = if binary { "KMGTPEZY" } else { "kMGTPEZY" };
        let mut text = String::new();
        for (index, letter) in letters.chars().enumerate() {
            let unit = f64::powi(base, index as i32 + 2);
            let number = base * bytes / unit;
            let number = match number.is_finite() {
                true => float::fixed(number, 'f', 1, false),
                false => float::non_finite(number).to_owned(),
            };
            text = format!("{number} {letter}{suffix}");
            if bytes < unit {
                break;
            }
        }
        text
    };
    Ok(Value::Str(Str::template(text)))
}
