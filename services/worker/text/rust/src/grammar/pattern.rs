// SPDX-License-Identifier: Apache-2.0
//! Regular expressions, so rewritten that what they match is matched in other dialects, too.
//!
//! Classes differ: `\d` is ASCII in ECMA-262 and Unicode in Python. An answer takes `\d` in the
//! narrow sense and what `\D` leaves out in the wide one, so it matches in either.

use regex_syntax::ast::parse::ParserBuilder;
use regex_syntax::ast::{
    AssertionKind, Ast, ClassBracketed, ClassPerl, ClassPerlKind, ClassSet, ClassSetBinaryOpKind,
    ClassSetItem, Flag, Flags, GroupKind, HexLiteralKind, Literal, LiteralKind, Span,
    SpecialLiteralKind,
};

/// Expressions in expressions.
const MAX_DEPTH: u32 = 100;

/// The characters of words in any dialect. llguidance reads `\w` and `\d` of a schema's
/// pattern as ASCII, so they are in no result.
const ALL_WORD: &str = r"\p{Alphabetic}\p{M}\p{N}\p{Pc}\p{Join_Control}";

#[derive(Clone, Copy, PartialEq)]
pub enum Dialect {
    /// JSON schema's: ECMA-262. What means something else there is refused.
    Ecma,
    /// That of Rust's crate `regex`, which is mostly Python's.
    Rust,
}

/// The same expression, as llguidance is to read it; or why it is refused.
pub fn rewrite(pattern: &str, dialect: Dialect) -> Result<String, String> {
    let mut parser = ParserBuilder::new().nest_limit(MAX_DEPTH).build();
    let ast = parser
        .parse(pattern)
        .map_err(|e| format!("{} (at character {})", e.kind(), e.span().start.column))?;
    let mut rewriter = Rewriter { pattern, dialect, edits: Vec::new() };
    rewriter.expression(&ast)?;
    Ok(rewriter.rewritten())
}

struct Rewriter<'a> {
    pattern: &'a str,
    dialect: Dialect,
    edits: Vec<(usize, usize, String)>,
}

impl Rewriter<'_> {
    fn rewritten(mut self) -> String {
        self.edits.sort_by_key(|edit| edit.0);
        let mut result = String::with_capacity(self.pattern.len());
        let mut done = 0;
        for (begin, end, text) in self.edits {
            result.push_str(&self.pattern[done..begin]);
            result.push_str(&text);
            done = end;
        }
        result + &self.pattern[done..]
    }

    fn edit(&mut self, begin: usize, end: usize, text: impl Into<String>) {
        self.edits.push((begin, end, text.into()));
    }

    /// Refuses the part of the pattern at `span`.
    fn refuse<T>(&self, span: &Span, what: &str) -> Result<T, String> {
        let part = &self.pattern[span.start.offset..span.end.offset];
        let part: String = part.chars().take(40).collect();
        Err(format!("{what}: `{part}` (at character {})", span.start.column))
    }

    fn in_ecma(&self, span: &Span) -> Result<(), String> {
        match self.dialect {
            Dialect::Rust => Ok(()),
            Dialect::Ecma => self.refuse(span, "not supported, or of another meaning in ECMA-262"),
        }
    }

    fn expression(&mut self, ast: &Ast) -> Result<(), String> {
        match ast {
            Ast::Empty(_) => Ok(()),
            Ast::Flags(set) => {
                self.in_ecma(&set.span)?;
                self.flags(&set.span, &set.flags)
            }
            Ast::Literal(literal) => self.literal(literal),
            Ast::Dot(span) => {
                if self.dialect == Dialect::Ecma {
                    self.edit(span.start.offset, span.end.offset, r"[^\n\r\x{2028}\x{2029}]");
                }
                Ok(())
            }
            Ast::Assertion(assertion) => match assertion.kind {
                AssertionKind::StartLine | AssertionKind::EndLine => Ok(()),
                AssertionKind::StartText | AssertionKind::EndText => self.in_ecma(&assertion.span),
                _ => self.refuse(&assertion.span, "word boundaries are not supported"),
            },
            Ast::ClassUnicode(_) => Ok(()),
            Ast::ClassPerl(class) => {
                self.perl(class, true, false);
                Ok(())
            }
            Ast::ClassBracketed(class) => self.bracketed(class, true),
            Ast::Repetition(repetition) => self.expression(&repetition.ast),
            Ast::Group(group) => {
                match &group.kind {
                    GroupKind::CaptureIndex(_) => {}
                    // llguidance gives one name a meaning.
                    GroupKind::CaptureName { name, .. } => {
                        self.edit(group.span.start.offset, name.span.end.offset + 1, "(");
                    }
                    GroupKind::NonCapturing(flags) => {
                        if !flags.items.is_empty() {
                            self.in_ecma(&flags.span)?;
                        }
                        self.flags(&flags.span, flags)?;
                    }
                }
                self.expression(&group.ast)
            }
            Ast::Alternation(alternation) => {
                alternation.asts.iter().try_for_each(|ast| self.expression(ast))
            }
            Ast::Concat(concat) => concat.asts.iter().try_for_each(|ast| self.expression(ast)),
        }
    }

    fn flags(&self, span: &Span, flags: &Flags) -> Result<(), String> {
        match flags.flag_state(Flag::Unicode) {
            Some(false) => self.refuse(span, "answers are Unicode"),
            _ => Ok(()),
        }
    }

    fn literal(&self, literal: &Literal) -> Result<(), String> {
        match literal.kind {
            LiteralKind::HexBrace(HexLiteralKind::X)
            | LiteralKind::HexBrace(HexLiteralKind::UnicodeLong)
            | LiteralKind::HexFixed(HexLiteralKind::UnicodeLong)
            | LiteralKind::Special(SpecialLiteralKind::Bell) => self.in_ecma(&literal.span),
            _ => Ok(()),
        }
    }

    /// `narrow`: what the class matches must match in all dialects; else what it does not match.
    fn bracketed(&mut self, class: &ClassBracketed, narrow: bool) -> Result<(), String> {
        self.set(&class.kind, narrow != class.negated)
    }

    fn set(&mut self, set: &ClassSet, narrow: bool) -> Result<(), String> {
        match set {
            ClassSet::Item(item) => self.item(item, narrow),
            ClassSet::BinaryOp(op) => {
                self.in_ecma(&op.span)?;
                let narrow_right = match op.kind {
                    ClassSetBinaryOpKind::Intersection => narrow,
                    ClassSetBinaryOpKind::Difference => !narrow,
                    ClassSetBinaryOpKind::SymmetricDifference => return Ok(()),
                };
                self.set(&op.lhs, narrow)?;
                self.set(&op.rhs, narrow_right)
            }
        }
    }

    fn item(&mut self, item: &ClassSetItem, narrow: bool) -> Result<(), String> {
        match item {
            ClassSetItem::Literal(literal) => self.literal(literal),
            ClassSetItem::Range(range) => {
                self.literal(&range.start)?;
                self.literal(&range.end)
            }
            ClassSetItem::Ascii(class) => self.in_ecma(&class.span),
            ClassSetItem::Perl(class) => {
                self.perl(class, narrow, true);
                Ok(())
            }
            ClassSetItem::Bracketed(class) => {
                self.in_ecma(&class.span)?;
                self.bracketed(class, narrow)
            }
            ClassSetItem::Union(union) => {
                union.items.iter().try_for_each(|item| self.item(item, narrow))
            }
            ClassSetItem::Empty(_) | ClassSetItem::Unicode(_) => Ok(()),
        }
    }

    fn perl(&mut self, class: &ClassPerl, narrow: bool, in_brackets: bool) {
        let (least, most) = match (&class.kind, self.dialect) {
            (ClassPerlKind::Digit, Dialect::Ecma) => ("0-9", r"\p{Nd}"),
            (ClassPerlKind::Digit, Dialect::Rust) => (r"\p{Nd}", r"\p{Nd}"),
            (ClassPerlKind::Word, Dialect::Ecma) => ("0-9A-Za-z_", ALL_WORD),
            (ClassPerlKind::Word, Dialect::Rust) => (r"\p{L}\p{Nd}\p{Nl}_", ALL_WORD),
            (ClassPerlKind::Space, Dialect::Ecma) => {
                (r"\x20\t\n\r\x0B\x0C", r"\p{White_Space}\x{FEFF}\x1C-\x1F")
            }
            (ClassPerlKind::Space, Dialect::Rust) => {
                (r"\p{White_Space}", r"\p{White_Space}\x1C-\x1F")
            }
        };
        let set = if class.negated == narrow { most } else { least };
        let text = match (class.negated, in_brackets) {
            (true, _) => format!("[^{set}]"),
            (false, false) => format!("[{set}]"),
            (false, true) => set.to_owned(),
        };
        self.edit(class.span.start.offset, class.span.end.offset, text);
    }
}
