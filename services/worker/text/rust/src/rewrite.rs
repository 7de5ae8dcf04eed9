// SPDX-License-Identifier: Apache-2.0
//! Rewrites two constructs of templates that mean something else to transformers than to minijinja,
//! before the template is compiled.

use minijinja::machinery::{tokenize, Token, WhitespaceConfig};
use minijinja::syntax::SyntaxConfig;

/// The filter around the value of a loop.
pub const LOOP_ITEMS: &str = "continuo_loop_items";

/// * `{% for x in e %}` becomes `{% for x in (e)|continuo_loop_items %}`: Python refuses to loop
///   over None, minijinja takes it for an empty list.
/// * `{% generation %}` … `{% endgeneration %}`, which tell a trainer what the assistant's text
///   is, become `{% with %}` … `{% endwith %}`: a scope and nothing else.
///
/// A text that is no template is returned as it is; compiling it reports the error.
pub fn rewrite(source: &str) -> String {
    let tokens: Vec<_> =
        tokenize(source, false, SyntaxConfig::default(), WhitespaceConfig::default())
            .map_while(Result::ok)
            .map(|(token, span)| (token, span.start_offset as usize, span.end_offset as usize))
            .collect();
    let mut edits: Vec<(usize, usize, String)> = Vec::new();
    for (index, window) in tokens.windows(3).enumerate() {
        let [(Token::BlockStart, ..), (Token::Ident(tag), begin, end), (third, ..)] = window else {
            continue;
        };
        match (*tag, third) {
            ("generation", Token::BlockEnd) => edits.push((*begin, *end, "with".to_owned())),
            ("endgeneration", Token::BlockEnd) => edits.push((*begin, *end, "endwith".to_owned())),
            ("for", _) => {
                if let Some((begin, end)) = loop_expression(&tokens[index + 2..]) {
                    edits.push((begin, begin, "(".to_owned()));
                    edits.push((end, end, format!(")|{LOOP_ITEMS}")));
                }
            }
            _ => {}
        }
    }

    let mut out = String::with_capacity(source.len() + 32 * edits.len());
    let mut done = 0;
    for (begin, end, text) in edits {
        let Some(kept) = source.get(done..begin) else { return source.to_owned() };
        out.push_str(kept);
        out.push_str(&text);
        done = end;
    }
    out.push_str(source.get(done..).unwrap_or_default());
    out
}

/// The range of the expression after `in`, among the tokens that follow `for`.
fn loop_expression(tokens: &[(Token, usize, usize)]) -> Option<(usize, usize)> {
    let first = 1 + tokens.iter().position(|(token, ..)| matches!(token, Token::Ident("in")))?;
    let mut depth = 0;
    for (index, (token, ..)) in tokens.iter().enumerate().skip(first) {
        match token {
            Token::ParenOpen | Token::BracketOpen | Token::BraceOpen => depth += 1,
            Token::ParenClose | Token::BracketClose | Token::BraceClose => depth -= 1,
            Token::BlockEnd | Token::Ident("if" | "recursive") if depth == 0 && index > first => {
                return Some((tokens[first].1, tokens[index - 1].2));
            }
            Token::BlockEnd | Token::BlockStart | Token::TemplateData(_) => return None,
            _ => {}
        }
    }
    None
}
