// SPDX-License-Identifier: Apache-2.0
//! Strings that know which of their bytes come from a request. Everything that makes a string of others
//! does it by `Str::slice`, `Str::map` and `Builder`, which keep this knowledge.

use std::ops::Range;
use std::sync::Arc;

use super::error::{Error, Kind, Result};

/// Most bytes of a string, and of a whole rendering.
pub const MAX_TEXT_BYTES: usize = if cfg!(fuzzing) { 1 << 20 } else { 32 << 20 };

/// Bytes of a text, from the first to before the second.
pub type Span = (usize, usize);

/// Where bytes come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    Template,
    Request,
    /// The request, as tags that a model writes in an answer: they are read as the template's own.
    AnswerTag,
}

#[derive(Clone, Debug)]
enum Marks {
    /// Everything is the template's own.
    Template,
    /// Everything comes from the request.
    Content,
    /// These spans are not the template's: ascending, none empty, those of one origin apart.
    Mixed(Arc<[(Span, Origin)]>),
}

/// An immutable string of Python, or markupsafe's Markup.
#[derive(Clone, Debug)]
pub struct Str {
    text: Arc<str>,
    marks: Marks,
    pub markup: bool,
}

impl From<&str> for Str {
    fn from(text: &str) -> Str {
        Str::template(text)
    }
}

impl Str {
    pub fn template(text: impl Into<Arc<str>>) -> Str {
        Str { text: text.into(), marks: Marks::Template, markup: false }
    }

    pub fn content(text: impl Into<Arc<str>>) -> Str {
        Str { text: text.into(), marks: Marks::Content, markup: false }
    }

    /// A text of the request in which the spans of `tags`, ascending and apart, are tags of an answer.
    pub fn answer(text: &str, tags: impl Iterator<Item = Range<usize>>) -> Str {
        let mut builder = Builder::default();
        let mut done = 0;
        for tag in tags {
            builder.push_marked(&text[done..tag.start], Origin::Request);
            builder.push_marked(&text[tag.clone()], Origin::AnswerTag);
            done = tag.end;
        }
        builder.push_marked(&text[done..], Origin::Request);
        match builder.overflow {
            true => Str::content(text),
            false => builder.into_str(),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub fn len(&self) -> usize {
        self.text.len()
    }

    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    pub fn num_chars(&self) -> usize {
        self.text.chars().count()
    }

    pub fn shared(&self) -> Arc<str> {
        self.text.clone()
    }

    pub fn with_markup(mut self, markup: bool) -> Str {
        self.markup = markup;
        self
    }

    /// The spans that come from the request and are encoded as text. Where a tag of an answer is the last
    /// of the request, an empty span tells its end.
    pub fn spans(&self) -> Vec<Span> {
        let mut spans: Vec<Span> = Vec::new();
        let marks = self.marks_in(&(0..self.len()));
        for (index, (span, origin)) in marks.iter().enumerate() {
            match origin {
                Origin::AnswerTag if index + 1 == marks.len() => spans.push((span.1, span.1)),
                Origin::AnswerTag | Origin::Template => {}
                Origin::Request => spans.push(*span),
            }
        }
        spans
    }

    fn marks_in(&self, range: &Range<usize>) -> Vec<(Span, Origin)> {
        let cut = |(begin, end): Span| (begin.max(range.start), end.min(range.end));
        match &self.marks {
            Marks::Template => Vec::new(),
            Marks::Content if range.is_empty() => Vec::new(),
            Marks::Content => vec![((range.start, range.end), Origin::Request)],
            Marks::Mixed(spans) => {
                let first = spans.partition_point(|(span, _)| span.1 <= range.start);
                let rest = spans[first..].iter().take_while(|(span, _)| span.0 < range.end);
                rest.map(|(span, origin)| (cut(*span), *origin))
                    .filter(|(span, _)| span.0 < span.1)
                    .collect()
            }
        }
    }

    /// The bytes of `range`, which begins and ends between characters.
    pub fn slice(&self, range: Range<usize>) -> Str {
        if range == (0..self.len()) {
            return self.clone();
        }
        let mut builder = Builder::default();
        builder.push_part(self, range);
        builder.into_str().with_markup(self.markup)
    }

    /// The offset of the `index`-th character, or the length.
    pub fn offset_of(&self, index: usize) -> usize {
        self.text.char_indices().nth(index).map_or(self.len(), |(offset, _)| offset)
    }

    /// The parts and where each comes from.
    fn runs(&self) -> Vec<(Range<usize>, Origin)> {
        let mut runs = Vec::new();
        let mut done = 0;
        for ((begin, end), origin) in self.marks_in(&(0..self.len())) {
            if done < begin {
                runs.push((done..begin, Origin::Template));
            }
            runs.push((begin..end, origin));
            done = end;
        }
        if done < self.len() {
            runs.push((done..self.len(), Origin::Template));
        }
        runs
    }

    /// The parts that are the template's own.
    pub fn template_parts(&self) -> impl Iterator<Item = &str> {
        let own = self.runs().into_iter().filter(|(_, origin)| *origin == Origin::Template);
        own.map(|(range, _)| &self.text[range])
    }

    /// Calls `each` for every character with a text that it adds the new characters to.
    pub fn map(&self, mut each: impl FnMut(char, &mut String)) -> Result<Str> {
        let mut builder = Builder::default();
        for (range, origin) in self.runs() {
            let mut part = String::with_capacity(range.len());
            for c in self.text[range].chars() {
                each(c, &mut part);
                if part.len() > MAX_TEXT_BYTES {
                    return Err(too_long());
                }
            }
            builder.push_marked(&part, origin);
        }
        Ok(builder.finish()?.with_markup(self.markup))
    }

    /// The same marks with another text of the same length.
    pub fn with_text(&self, text: &str) -> Str {
        debug_assert_eq!(text.len(), self.len());
        Str { text: text.into(), marks: self.marks.clone(), markup: self.markup }
    }

    /// Marks all of `text` where any of this string comes from the request.
    pub fn marks_for(&self, text: &str) -> Str {
        match self.marks {
            Marks::Template => Str::template(text),
            _ => Str::content(text),
        }
    }
}

pub fn too_long() -> Error {
    let message = format!("it makes a text of more than {MAX_TEXT_BYTES} bytes");
    Error { kind: Kind::TooLong, message }
}

/// A string that grows. What would make it too long is left out, and told by `finish`.
#[derive(Default)]
pub struct Builder {
    text: String,
    spans: Vec<(Span, Origin)>,
    overflow: bool,
}

impl Builder {
    pub fn len(&self) -> usize {
        self.text.len()
    }

    pub fn is_full(&self) -> bool {
        self.overflow
    }

    /// Adds the template's own text.
    pub fn push_str(&mut self, text: &str) {
        self.push_marked(text, Origin::Template);
    }

    pub fn push_char(&mut self, c: char) {
        self.push_marked(c.encode_utf8(&mut [0; 4]), Origin::Template);
    }

    fn push_marked(&mut self, text: &str, origin: Origin) {
        if self.overflow || text.len() > MAX_TEXT_BYTES - self.text.len() {
            self.overflow = true;
            return;
        }
        if origin != Origin::Template && !text.is_empty() {
            self.mark(self.text.len(), self.text.len() + text.len(), origin);
        }
        self.text.push_str(text);
    }

    pub fn push(&mut self, text: &Str) {
        self.push_part(text, 0..text.len());
    }

    pub fn push_part(&mut self, text: &Str, range: Range<usize>) {
        if self.overflow || range.len() > MAX_TEXT_BYTES - self.text.len() {
            self.overflow = true;
            return;
        }
        let at = self.text.len();
        for ((begin, end), origin) in text.marks_in(&range) {
            self.mark(at + begin - range.start, at + end - range.start, origin);
        }
        self.text.push_str(&text.text[range]);
    }

    /// Adds `count` times `c`.
    pub fn pad(&mut self, c: char, count: usize) {
        if count.saturating_mul(c.len_utf8()) > MAX_TEXT_BYTES {
            self.overflow = true;
        }
        if !self.overflow {
            self.push_str(&c.to_string().repeat(count));
        }
    }

    fn mark(&mut self, begin: usize, end: usize, origin: Origin) {
        match self.spans.last_mut() {
            Some((last, of)) if last.1 == begin && *of == origin => last.1 = end,
            _ => self.spans.push(((begin, end), origin)),
        }
    }

    pub fn finish(self) -> Result<Str> {
        if self.overflow {
            return Err(too_long());
        }
        Ok(self.into_str())
    }

    fn into_str(self) -> Str {
        let marks = match self.spans.as_slice() {
            [] => Marks::Template,
            [((0, end), Origin::Request)] if *end == self.text.len() => Marks::Content,
            _ => Marks::Mixed(self.spans.into()),
        };
        Str { text: self.text.into(), marks, markup: false }
    }
}
