// SPDX-License-Identifier: Apache-2.0
//! How many patterns and formats may apply to one string, because schemas are joined.
//!
//! llguidance intersects them with work that is the product of their alternatives, and counts it only
//! afterwards.

use std::collections::BTreeMap;

use serde_json::Value;

use super::pointer::standard;

/// For one string.
const MAX_PATTERNS: usize = 2;
const MAX_FORMATS: usize = 2;
/// Bytes of patterns that meet others.
const MAX_BYTES: usize = 500;
const MAX_STEPS: usize = 20_000;

#[derive(Clone, Copy, Default)]
struct Count {
    patterns: usize,
    formats: usize,
    max_bytes: usize,
}

/// By the place in an instance: names of properties, "*" for any, "-" for items.
type Counts = BTreeMap<String, Count>;

/// False where too many may meet, or that takes too long to tell. References are as `schema.rs` has
/// rewritten them.
pub fn few_meet(schema: &Value) -> bool {
    let mut walk = Walk { root: schema, steps: 0, any_name: false, references: Vec::new() };
    let mut counts = Counts::new();
    if !walk.schema(schema, "", &mut counts) {
        return false;
    }
    if counts.keys().any(|place| place.contains("/*")) {
        walk = Walk { root: schema, steps: 0, any_name: true, references: Vec::new() };
        counts.clear();
        if !walk.schema(schema, "", &mut counts) {
            return false;
        }
    }
    counts.values().all(|count| {
        count.patterns <= MAX_PATTERNS
            && count.formats <= MAX_FORMATS
            && (count.patterns + count.formats < 2 || count.max_bytes <= MAX_BYTES)
    })
}

struct Walk<'a> {
    root: &'a Value,
    steps: usize,
    /// One property may be any other.
    any_name: bool,
    references: Vec<&'a str>,
}

impl<'a> Walk<'a> {
    /// Adds what applies at `place`. False after too many steps.
    fn schema(&mut self, schema: &'a Value, place: &str, counts: &mut Counts) -> bool {
        self.steps += 1;
        if self.steps > MAX_STEPS || place.len() > MAX_STEPS {
            return false;
        }
        let Some(object) = schema.as_object() else { return true };
        if let Some(pattern) = object.get("pattern").and_then(Value::as_str) {
            let count = counts.entry(place.to_owned()).or_default();
            count.patterns += 1;
            count.max_bytes = count.max_bytes.max(pattern.len());
        }
        if object.contains_key("format") {
            counts.entry(place.to_owned()).or_default().formats += 1;
        }
        if let Some(reference) = object.get("$ref").and_then(Value::as_str) {
            if !self.references.contains(&reference) {
                self.references.push(reference);
                let pointer = reference.strip_prefix('#').unwrap_or(reference);
                let target = self.root.pointer(&standard(pointer));
                let done = target.is_none_or(|target| self.schema(target, place, counts));
                self.references.pop();
                if !done {
                    return false;
                }
            }
        }
        list(object.get("allOf")).iter().all(|schema| self.schema(schema, place, counts))
            && self.one_of(list(object.get("anyOf")).iter().map(|s| (place.to_owned(), s)), counts)
            && self.one_of(list(object.get("oneOf")).iter().map(|s| (place.to_owned(), s)), counts)
            && self.children(object, place, counts)
    }

    fn children(
        &mut self,
        object: &'a serde_json::Map<String, Value>,
        place: &str,
        counts: &mut Counts,
    ) -> bool {
        let mut children: Vec<(String, &'a Value)> = Vec::new();
        for keyword in ["properties", "patternProperties"] {
            for (name, schema) in
                object.get(keyword).and_then(Value::as_object).into_iter().flatten()
            {
                let is_any = self.any_name || keyword == "patternProperties";
                let name = if is_any {
                    "*".to_owned()
                } else {
                    name.replace('/', "~1").replace('*', "~2")
                };
                children.push((format!("{place}/{name}"), schema));
            }
        }
        if let Some(schema) = object.get("additionalProperties") {
            children.push((format!("{place}/*"), schema));
        }
        for keyword in ["items", "prefixItems", "additionalItems"] {
            match object.get(keyword) {
                Some(Value::Array(schemas)) => {
                    children.extend(schemas.iter().map(|schema| (format!("{place}/-"), schema)));
                }
                Some(schema) => children.push((format!("{place}/-"), schema)),
                None => {}
            }
        }
        self.one_of(children.into_iter(), counts)
    }

    /// Adds at each place the most of any schema: only one of them applies to a value.
    fn one_of(
        &mut self,
        mut schemas: impl Iterator<Item = (String, &'a Value)>,
        counts: &mut Counts,
    ) -> bool {
        let mut most = Counts::new();
        let done = schemas.all(|(place, schema)| {
            let mut own = Counts::new();
            let done = self.schema(schema, &place, &mut own);
            for (place, count) in own {
                let most = most.entry(place).or_default();
                most.patterns = most.patterns.max(count.patterns);
                most.formats = most.formats.max(count.formats);
                most.max_bytes = most.max_bytes.max(count.max_bytes);
            }
            done
        });
        for (place, count) in most {
            let sum = counts.entry(place).or_default();
            sum.patterns += count.patterns;
            sum.formats += count.formats;
            sum.max_bytes = sum.max_bytes.max(count.max_bytes);
        }
        done
    }
}

fn list(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}
