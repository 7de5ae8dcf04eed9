// SPDX-License-Identifier: Apache-2.0
//! The arguments of a call, and their places among a function's parameters.

use super::error::{raised, Error, Result};
use super::text::Str;
use super::value::Value;

#[derive(Clone, Default)]
pub struct Arguments {
    pub positional: Vec<Value>,
    pub named: Vec<(Str, Value)>,
}

/// The values of a function's parameters, in their order.
pub struct Bound {
    function: &'static str,
    values: Vec<Option<Value>>,
}

impl Arguments {
    /// `parameters` are names; an empty one is positional only.
    pub fn bind(self, function: &'static str, parameters: &[&str]) -> Result<Bound> {
        let given = self.positional.len();
        if given > parameters.len() {
            let most = parameters.len();
            return Err(raised(format!(
                "{function}() takes at most {most} arguments ({given} given)"
            )));
        }
        let mut values: Vec<Option<Value>> = self.positional.into_iter().map(Some).collect();
        values.resize(parameters.len(), None);
        for (name, value) in self.named {
            let name = name.as_str();
            let place = parameters.iter().position(|parameter| *parameter == name);
            let Some(place) = place.filter(|_| !name.is_empty()) else {
                return Err(raised(format!(
                    "{function}() got an unexpected keyword argument '{name}'"
                )));
            };
            if values[place].replace(value).is_some() {
                return Err(raised(format!(
                    "{function}() got multiple values for argument '{name}'"
                )));
            }
        }
        Ok(Bound { function, values })
    }
}

impl Bound {
    pub fn take(&mut self, place: usize) -> Option<Value> {
        self.values[place].take()
    }

    /// Nothing for None, too.
    pub fn take_some(&mut self, place: usize) -> Option<Value> {
        self.take(place).filter(|value| !matches!(value, Value::None))
    }

    pub fn required(&mut self, place: usize) -> Result<Value> {
        let function = self.function;
        self.take(place)
            .ok_or_else(|| raised(format!("{function}() is missing argument {}", place + 1)))
    }

    fn wrong(&self, wanted: &str, value: &Value) -> Error {
        if let Value::Undefined(missing) = value {
            return missing.error();
        }
        raised(format!("{}() wants {wanted}, not {}", self.function, value.type_name()))
    }

    pub fn required_str(&mut self, place: usize) -> Result<Str> {
        match self.required(place)? {
            Value::Str(s) => Ok(s),
            value => Err(self.wrong("a string", &value)),
        }
    }

    /// A string, or nothing for None.
    pub fn optional_str(&mut self, place: usize) -> Result<Option<Str>> {
        match self.take_some(place) {
            None => Ok(None),
            Some(Value::Str(s)) => Ok(Some(s)),
            Some(value) => Err(self.wrong("a string", &value)),
        }
    }

    pub fn required_int(&mut self, place: usize) -> Result<i128> {
        let value = self.required(place)?;
        value.as_int().ok_or_else(|| self.wrong("an integer", &value))
    }

    pub fn int(&mut self, place: usize, default: i128) -> Result<i128> {
        match self.take(place) {
            None => Ok(default),
            Some(value) => value.as_int().ok_or_else(|| self.wrong("an integer", &value)),
        }
    }

    /// The truth of an integer or a boolean.
    pub fn flag(&mut self, place: usize, default: bool) -> Result<bool> {
        Ok(self.int(place, default.into())? != 0)
    }

    /// The truth of any value.
    pub fn is_true(&mut self, place: usize, default: bool) -> bool {
        self.take(place).map_or(default, |value| value.is_true())
    }
}
