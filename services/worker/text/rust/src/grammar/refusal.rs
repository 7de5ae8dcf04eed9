// SPDX-License-Identifier: Apache-2.0
//! Refusals of schemas.

/// Tells why a schema is refused; `place` is the keyword and its JSON pointer.
pub struct Refusal {
    place: Option<String>,
    why: String,
}

impl Refusal {
    /// The innermost place counts.
    pub fn at(self, keyword: &str, pointer: &str) -> Refusal {
        let place = self.place.unwrap_or_else(|| format!("{keyword} at {pointer}"));
        Refusal { place: Some(place), why: self.why }
    }

    pub fn text(self) -> String {
        format!("{}: {}", self.place.unwrap_or_default(), self.why)
    }
}

pub type Result<T> = std::result::Result<T, Refusal>;

pub fn refuse<T>(why: impl Into<String>) -> Result<T> {
    Err(Refusal { place: None, why: why.into() })
}

pub fn refuse_at<T>(keyword: &str, pointer: &str, why: &str) -> Result<T> {
    refuse(why).map_err(|refusal: Refusal| refusal.at(keyword, pointer))
}
