// SPDX-License-Identifier: Apache-2.0
//! The subset of JSON schema that answers can obey.
//!
//! llguidance takes keywords that it does not know, and some uses of those that it knows, for
//! annotations, or widens them. All that is refused here by keyword and JSON pointer; the rest is
//! rewritten where it has another meaning to it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Number, Value};

use super::meets::few_meet;
use super::pattern::{rewrite, Dialect};

const MAX_DEPTH: usize = 64;
const MAX_SCHEMAS: usize = 10_000;
const MAX_PATTERN_BYTES: usize = 10_000;
/// Items, properties, characters.
const MAX_COUNT: u64 = 100_000;
/// Doubles have each integer up to here.
const MAX_EXACT: u64 = 1 << 53;

const ANNOTATIONS: &[&str] = &[
    "$comment",
    "$anchor",
    "title",
    "description",
    "default",
    "examples",
    "example",
    "deprecated",
    "readOnly",
    "writeOnly",
    "contentMediaType",
    "contentEncoding",
    "discriminator",
    "nullable",
];
const FORMATS: &[&str] =
    &["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"];
const TYPES: &[&str] = &["null", "boolean", "integer", "number", "string", "array", "object"];
/// Oldest first.
const DRAFTS: &[&str] = &[
    "://json-schema.org/draft-04/schema",
    "://json-schema.org/draft-06/schema",
    "://json-schema.org/draft-07/schema",
    "://json-schema.org/draft/2019-09/schema",
    "://json-schema.org/draft/2020-12/schema",
];
const DRAFT_4: usize = 0;
const DRAFT_2020_12: usize = 4;
/// What llguidance says, the keyword that is meant, and what is said instead.
const LATE_REFUSALS: &[(&str, &str, &str)] = &[
    (
        "oneOf constraints",
        "oneOf",
        "options that are not seen to exclude each other are not supported; anyOf is",
    ),
    (
        "min/maxProperties only",
        "minProperties",
        "minProperties and maxProperties beside optional properties are not supported",
    ),
    (
        "are not disjoint",
        "patternProperties",
        "patterns that one name may match together are not supported",
    ),
];

/// Why a schema is refused; `place` is the keyword and its JSON pointer.
struct Refusal {
    place: Option<String>,
    why: String,
}

impl Refusal {
    /// The innermost place counts.
    fn at(self, keyword: &str, pointer: &str) -> Refusal {
        let place = self.place.unwrap_or_else(|| format!("{keyword} at {pointer}"));
        Refusal { place: Some(place), why: self.why }
    }

    fn text(self) -> String {
        format!("{}: {}", self.place.unwrap_or_default(), self.why)
    }
}

type Result<T> = std::result::Result<T, Refusal>;

fn refuse<T>(why: impl Into<String>) -> Result<T> {
    Err(Refusal { place: None, why: why.into() })
}

/// A schema as llguidance is to read it, and where keywords are that it may still refuse.
pub struct CheckedSchema {
    pub schema: Value,
    places: BTreeMap<&'static str, Vec<String>>,
}

impl CheckedSchema {
    pub fn new(schema: Value) -> std::result::Result<CheckedSchema, String> {
        CheckedSchema::check(schema, Checker::default())
    }

    /// In Lark a schema may tell how its JSON is written.
    pub fn in_lark(schema: Value) -> std::result::Result<CheckedSchema, String> {
        CheckedSchema::check(schema, Checker { in_lark: true, ..Checker::default() })
    }

    fn check(
        mut schema: Value,
        mut checker: Checker,
    ) -> std::result::Result<CheckedSchema, String> {
        checker.check(&mut schema).map_err(Refusal::text)?;
        Ok(CheckedSchema { schema, places: checker.places })
    }

    /// Puts places to an error of llguidance.
    pub fn explain(&self, message: &str) -> String {
        for (begin, keyword, why) in LATE_REFUSALS {
            if message.contains(begin) {
                let places = self.places.get(keyword).map(Vec::as_slice).unwrap_or_default();
                let shown: Vec<&str> = places.iter().take(3).map(String::as_str).collect();
                return format!("{keyword} at {}: {why}", shown.join(" or "));
            }
        }
        message.to_owned()
    }
}

#[derive(Default)]
struct Checker {
    /// Index of DRAFTS.
    draft: usize,
    /// Pointers of the schemas that are checked.
    checked: BTreeSet<String>,
    /// The places of references, and the pointers of what they name.
    references: Vec<(String, String)>,
    places: BTreeMap<&'static str, Vec<String>>,
    multiples: BTreeSet<String>,
    /// Bounds of several schemas may apply to one number.
    merges: bool,
    in_lark: bool,
    /// Schemas of several places apply to one value.
    joins: bool,
}

impl Checker {
    fn check(&mut self, schema: &mut Value) -> Result<()> {
        let text = schema.to_string();
        self.merges = ["\"allOf\"", "\"anyOf\"", "\"oneOf\"", "\"$ref\""]
            .iter()
            .any(|key| text.contains(key));
        let Some(root) = schema.as_object_mut() else {
            return refuse("not a JSON object").map_err(|e: Refusal| e.at("the schema", "/"));
        };
        self.draft = draft_of(root).map_err(|e| e.at("$schema", "/$schema"))?;
        self.schema(schema, "", 0)?;
        while let Some((from, to)) = self.references.pop() {
            if self.checked.contains(&to) {
                continue;
            }
            match resolve(schema, &to) {
                Some(target) => self.schema(target, &to, 0)?,
                None => {
                    let refusal: Result<()> = refuse("names nothing in the schema");
                    return refusal.map_err(|e| e.at("$ref", &from));
                }
            }
        }
        if self.joins && !few_meet(schema) {
            let refusal: Result<()> = refuse("too many, or too long ones, may apply to one string");
            return refusal.map_err(|e| e.at("pattern and format", "joined schemas"));
        }
        check_multiples(&self.multiples)
    }

    fn schema(&mut self, schema: &mut Value, at: &str, depth: usize) -> Result<()> {
        if depth > MAX_DEPTH {
            return refuse(format!("there are more than {MAX_DEPTH} schemas within each other"));
        }
        if self.checked.len() >= MAX_SCHEMAS {
            return refuse(format!("there are more than {MAX_SCHEMAS} schemas"));
        }
        self.checked.insert(at.to_owned());
        let object = match schema {
            Value::Bool(_) => return Ok(()),
            Value::Object(object) => object,
            _ => return refuse("a schema is an object or a boolean"),
        };
        let shape = Shape::of(object);
        self.joins |= object.contains_key("allOf") || {
            let restricts =
                |name: &&String| !ANNOTATIONS.contains(&name.as_str()) && !name.starts_with('$');
            let applies = |name: &str| object.contains_key(name);
            let applied =
                ["$ref", "anyOf", "oneOf"].into_iter().filter(|name| applies(name)).count();
            let others = object.keys().filter(restricts).count() + usize::from(applies("$ref"));
            applied > 0 && others > 1
        };
        for (keyword, value) in object.iter_mut() {
            let here = format!("{at}/{}", escaped(keyword));
            self.keyword(keyword, value, &shape, &here, depth).map_err(|e| e.at(keyword, &here))?;
        }
        exclude_ends(object, self.merges);
        Ok(())
    }

    fn keyword(
        &mut self,
        keyword: &str,
        value: &mut Value,
        shape: &Shape,
        here: &str,
        depth: usize,
    ) -> Result<()> {
        match keyword {
            "type" => check_type(value),
            "enum" => match value.as_array() {
                Some(values) if !values.is_empty() => values.iter().try_for_each(check_constant),
                _ => refuse("not an array of at least one value"),
            },
            "const" => check_constant(value),
            "$ref" => {
                let pointer = pointer_of(value.as_str().unwrap_or_default())?;
                *value = Value::from(format!("#{pointer}"));
                self.references.push((here.to_owned(), pointer));
                Ok(())
            }
            "oneOf" => {
                self.note("oneOf", here);
                self.list(value, here, depth)
            }
            "anyOf" | "allOf" => self.list(value, here, depth),
            "prefixItems" if self.draft < DRAFT_2020_12 => {
                refuse("unknown to the draft that $schema names")
            }
            "prefixItems" => self.list(value, here, depth),
            "items" if shape.has_tuple => self.list(value, here, depth),
            "additionalItems" if shape.has_tuple => self.schema(value, here, depth + 1),
            "items" | "additionalProperties" => self.schema(value, here, depth + 1),
            "properties" => self.map(value, here, depth),
            "patternProperties" => {
                self.note("patternProperties", here);
                rewrite_names(value)?;
                self.map(value, here, depth)
            }
            // Only what a reference names is looked at.
            "$defs" | "definitions" if value.is_object() => Ok(()),
            "required" => match value.as_array() {
                Some(names) if names.iter().all(Value::is_string) => Ok(()),
                _ => refuse("not an array of strings"),
            },
            "minItems" | "maxItems" | "minLength" | "maxLength" => count_of(value).map(|_| ()),
            "minProperties" | "maxProperties" => {
                self.note("minProperties", here);
                // To the grammar the same further name twice is two properties.
                if count_of(value)? > shape.num_required + 1 && keyword == "minProperties" {
                    return refuse("more than one property beyond those required is not supported");
                }
                Ok(())
            }
            "pattern" => match value.as_str() {
                Some(text) if text.len() > MAX_PATTERN_BYTES => {
                    refuse(format!("more than {MAX_PATTERN_BYTES} bytes are not supported"))
                }
                Some(text) => {
                    *value = Value::from(rewrite(text, Dialect::Ecma).or_else(refuse)?);
                    Ok(())
                }
                None => refuse("not a string"),
            },
            "format" => match value.as_str() {
                Some(format) if FORMATS.contains(&format) => Ok(()),
                _ => refuse(format!("{value} is not supported; these are: {}", FORMATS.join(", "))),
            },
            "exclusiveMinimum" | "exclusiveMaximum"
                if value.is_boolean() && self.draft == DRAFT_4 =>
            {
                Ok(())
            }
            "minimum" | "exclusiveMinimum" => tighten(value, false),
            "maximum" | "exclusiveMaximum" => tighten(value, true),
            "multipleOf" => {
                check_multiple(value)?;
                self.multiples.insert(value.to_string());
                Ok(())
            }
            "$id" | "id" if here.matches('/').count() == 1 => Ok(()),
            "x-guidance" if self.in_lark && here == "/x-guidance" => check_writing(value),
            name if ANNOTATIONS.contains(&name) => Ok(()),
            name if name.starts_with("x-") && name != "x-guidance" => Ok(()),
            _ => refuse("not supported"),
        }
    }

    fn note(&mut self, keyword: &'static str, here: &str) {
        self.places.entry(keyword).or_default().push(here.to_owned());
    }

    fn list(&mut self, value: &mut Value, at: &str, depth: usize) -> Result<()> {
        match value.as_array_mut() {
            Some(schemas) if !schemas.is_empty() => {
                for (index, schema) in schemas.iter_mut().enumerate() {
                    self.schema(schema, &format!("{at}/{index}"), depth + 1)?;
                }
                Ok(())
            }
            _ => refuse("not an array of at least one schema"),
        }
    }

    fn map(&mut self, value: &mut Value, at: &str, depth: usize) -> Result<()> {
        let Some(schemas) = value.as_object_mut() else {
            return refuse("not an object of schemas");
        };
        for (name, schema) in schemas.iter_mut() {
            self.schema(schema, &format!("{at}/{}", escaped(name)), depth + 1)?;
        }
        Ok(())
    }
}

/// How JSON is written, which changes no schema's meaning. With `\u0061` one name has two spellings.
fn check_writing(value: &Value) -> Result<()> {
    for (name, value) in value.as_object().into_iter().flatten() {
        match name.as_str() {
            "whitespace_pattern" | "whitespace_flexible" | "item_separator" | "key_separator" => {}
            "json_allowed_escapes" if value.as_str().is_some_and(|text| !text.contains('u')) => {}
            _ => return refuse(format!("{name} is not supported")),
        }
    }
    match value.get("json_allowed_escapes") {
        Some(_) => Ok(()),
        None => refuse("json_allowed_escapes is missing"),
    }
}

/// What keywords of one schema need to know of others.
struct Shape {
    num_required: u64,
    /// `items` is a list, as in drafts before 2020-12.
    has_tuple: bool,
}

impl Shape {
    fn of(object: &Map<String, Value>) -> Shape {
        let required = object.get("required").and_then(Value::as_array);
        let names = required.into_iter().flatten().filter_map(Value::as_str);
        Shape {
            num_required: names.collect::<BTreeSet<&str>>().len() as u64,
            has_tuple: object.get("items").is_some_and(Value::is_array),
        }
    }
}

/// A name as JSON pointers write it.
fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

fn draft_of(root: &mut Map<String, Value>) -> Result<usize> {
    // Without it llguidance reads all keywords as the newest draft has them.
    let Some(named) = root.remove("$schema") else { return Ok(DRAFT_2020_12) };
    let name = named.as_str().unwrap_or_default().trim_end_matches('#');
    let found = DRAFTS
        .iter()
        .position(|draft| name.strip_prefix("https").or(name.strip_prefix("http")) == Some(draft));
    found.map_or_else(|| refuse(format!("{named} is not supported")), Ok)
}

/// The JSON pointer of a reference, with names as they are: llguidance takes them so.
fn pointer_of(reference: &str) -> Result<String> {
    let Some(fragment) = reference.strip_prefix('#') else {
        return refuse("only references within the schema, such as #/$defs/name, are supported");
    };
    if fragment.is_empty() {
        return Ok(String::new());
    }
    if !fragment.starts_with('/') || fragment == "/" {
        return refuse("only references within the schema, such as #/$defs/name, are supported");
    }
    let mut pointer = String::new();
    for name in fragment.split('/').skip(1) {
        let name = percent_decoded(name)?.replace("~1", "/").replace("~0", "~");
        if name.contains('/') {
            return refuse("names with a slash are not supported");
        }
        pointer.push('/');
        pointer.push_str(&name);
    }
    Ok(pointer)
}

fn percent_decoded(name: &str) -> Result<String> {
    let mut bytes = Vec::new();
    let mut rest = name.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digits = rest.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => bytes.push(byte),
            None => return refuse("not a JSON pointer"),
        }
        rest = &rest[2..];
    }
    String::from_utf8(bytes).or_else(|_| refuse("not UTF-8"))
}

fn resolve<'a>(schema: &'a mut Value, pointer: &str) -> Option<&'a mut Value> {
    pointer.split('/').skip(1).try_fold(schema, |value, name| match value {
        Value::Object(object) => object.get_mut(name),
        Value::Array(array) => array.get_mut(name.parse::<usize>().ok()?),
        _ => None,
    })
}

fn check_type(value: &Value) -> Result<()> {
    let known = |name: &Value| name.as_str().is_some_and(|name| TYPES.contains(&name));
    match value {
        Value::Array(names) if !names.is_empty() && names.iter().all(known) => Ok(()),
        name if known(name) => Ok(()),
        _ => refuse(format!("{value} is not supported; these are: {}", TYPES.join(", "))),
    }
}

/// llguidance reads numbers as doubles.
fn check_constant(value: &Value) -> Result<()> {
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

fn count_of(value: &Value) -> Result<u64> {
    match value.as_u64() {
        Some(count) if count <= MAX_COUNT => Ok(count),
        Some(_) => refuse(format!("more than {MAX_COUNT} is not supported")),
        None => refuse("not an integer from 0"),
    }
}

/// A bound that no double has becomes the next one inwards.
fn tighten(value: &mut Value, is_upper: bool) -> Result<()> {
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
fn exclude_ends(object: &mut Map<String, Value>, merges: bool) {
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

fn check_multiple(value: &Value) -> Result<()> {
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

/// Where several apply to one number, llguidance makes their least common multiple in 32 bits,
/// unchecked.
fn check_multiples(multiples: &BTreeSet<String>) -> Result<()> {
    let values = multiples.iter().filter_map(|text| serde_json::from_str(text).ok());
    let decimals: Vec<(u64, u32)> = values.filter_map(|value: Value| decimal_of(&value)).collect();
    let most = decimals.iter().map(|decimal| decimal.1).max().unwrap_or(0);
    let product = decimals.iter().try_fold(1u64, |product, (digits, behind)| {
        product.checked_mul(*digits)?.checked_mul(10u64.pow(most - behind))
    });
    match product {
        Some(product) if decimals.len() < 2 || product <= u32::MAX.into() => Ok(()),
        _ => refuse("all different ones multiplied are more than 32 bits")
            .map_err(|e: Refusal| e.at("multipleOf", "more than one place")),
    }
}

fn rewrite_names(value: &mut Value) -> Result<()> {
    let Some(schemas) = value.as_object_mut() else { return Ok(()) };
    let mut rewritten = Map::new();
    for (pattern, schema) in std::mem::take(schemas) {
        let text = rewrite(&pattern, Dialect::Ecma).or_else(refuse)?;
        if rewritten.insert(text, schema).is_some() {
            return refuse(format!("{pattern} is there twice"));
        }
    }
    *schemas = rewritten;
    Ok(())
}
