// SPDX-License-Identifier: Apache-2.0
//! The subset of JSON schema that answers can obey.
//!
//! llguidance takes keywords that it does not know, and some uses of those that it knows, for
//! annotations, or widens them. All that is refused here by keyword and JSON pointer; the rest is
//! rewritten where it has another meaning to it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::meets::few_meet;
use super::numbers::{check_constant, check_multiple, check_multiples, exclude_ends, tighten};
use super::pattern::{rewrite, Dialect};
use super::pointer::{escaped, pointer_of, standard};
use super::refusal::{refuse, refuse_at, Refusal, Result};

const MAX_DEPTH: usize = 64;
const MAX_SCHEMAS: usize = 10_000;
const MAX_PATTERN_BYTES: usize = 10_000;
/// Items, properties, characters.
const MAX_COUNT: u64 = 100_000;

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
/// A part of an error of llguidance, the keyword that it means, and the reason that is told instead.
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
            return refuse_at("the schema", "/", "not a JSON object");
        };
        self.draft = draft_of(root).map_err(|e| e.at("$schema", "/$schema"))?;
        self.schema(schema, "", 0)?;
        while let Some((from, to)) = self.references.pop() {
            if self.checked.contains(&to) {
                continue;
            }
            match schema.pointer_mut(&standard(&to)) {
                Some(target) => self.schema(target, &to, 0)?,
                None => return refuse_at("$ref", &from, "names nothing in the schema"),
            }
        }
        if self.joins && !few_meet(schema) {
            let why = "too many, or too long ones, may apply to one string";
            return refuse_at("pattern and format", "joined schemas", why);
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

/// Checks how JSON is to be written, which changes no schema's meaning. With `\u0061` one name has two
/// spellings.
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

/// Facts about a schema that several of its keywords need.
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

fn draft_of(root: &mut Map<String, Value>) -> Result<usize> {
    // Without it llguidance reads all keywords as the newest draft has them.
    let Some(named) = root.remove("$schema") else { return Ok(DRAFT_2020_12) };
    let name = named.as_str().unwrap_or_default().trim_end_matches('#');
    let found = DRAFTS
        .iter()
        .position(|draft| name.strip_prefix("https").or(name.strip_prefix("http")) == Some(draft));
    found.map_or_else(|| refuse(format!("{named} is not supported")), Ok)
}

fn check_type(value: &Value) -> Result<()> {
    let known = |name: &Value| name.as_str().is_some_and(|name| TYPES.contains(&name));
    match value {
        Value::Array(names) if !names.is_empty() && names.iter().all(known) => Ok(()),
        name if known(name) => Ok(()),
        _ => refuse(format!("{value} is not supported; these are: {}", TYPES.join(", "))),
    }
}

fn count_of(value: &Value) -> Result<u64> {
    match value.as_u64() {
        Some(count) if count <= MAX_COUNT => Ok(count),
        Some(_) => refuse(format!("more than {MAX_COUNT} is not supported")),
        None => refuse("not an integer from 0"),
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
