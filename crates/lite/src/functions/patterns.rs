//! LIKE and regular expressions.

use std::cell::RefCell;

use polyshard_engine::{ScalarFunction, Value};
use polyshard_sql::SqlError;
use regex::Regex;

use super::{Answer, int, strict, text};
use crate::fail::{fail, unsupported};

/// Largest automaton of a pattern: a pattern of a user's should not take the server's memory.
const REGEX_BYTES_MAX: usize = 1 << 20;

pub(super) fn register(all: &mut Vec<ScalarFunction>) {
    all.extend([
        // text, pattern, escape, whether case does not count
        strict("pg_like", 4, |a| {
            let escape = text(&a[2])?;
            let mut letters = escape.chars();
            let (escape, more) = (letters.next(), letters.next());
            if more.is_some() {
                return Err(fail("22025", "invalid escape string"));
            }
            let (subject, pattern) = (text(&a[0])?, text(&a[1])?);
            let found = if int(&a[3])? != 0 {
                like(&fold(subject), &fold(pattern), escape)?
            } else {
                like(&subject.chars().collect::<Vec<_>>(), &pattern.chars().collect::<Vec<_>>(), escape)?
            };
            Ok(Value::Int(found.into()))
        }),
        // text, pattern, whether case does not count
        strict("pg_regex", 3, |a| {
            let (subject, pattern, fold) = (text(&a[0])?, text(&a[1])?, int(&a[2])? != 0);
            with_regex(pattern, fold, |regex| Value::Int(regex.is_match(subject).into()))
        }),
    ]);
}

fn fold(text: &str) -> Vec<char> {
    text.chars().map(super::strings::lower_char).collect()
}

/// PostgreSQL's LIKE: `%` any text, `_` any letter, the escape takes the next letter for itself.
fn like(text: &[char], pattern: &[char], escape: Option<char>) -> Result<bool, SqlError> {
    // The place to come back to: what the last % may still take.
    let mut back: Option<(usize, usize)> = None;
    let (mut at, mut of) = (0, 0);
    loop {
        let step = match pattern.get(of) {
            None => at == text.len(),
            // What is left of the pattern does not matter once the text is used up.
            Some(letter) if Some(*letter) == escape && at == text.len() => false,
            Some(letter) if Some(*letter) == escape => {
                let wanted = pattern
                    .get(of + 1)
                    .ok_or_else(|| fail("22025", "LIKE pattern must not end with escape character"))?;
                of += 1;
                text.get(at) == Some(wanted)
            }
            Some('%') => {
                back = Some((at, of + 1));
                of += 1;
                continue;
            }
            Some('_') => at < text.len(),
            Some(letter) => text.get(at) == Some(letter),
        };
        if step && of >= pattern.len() {
            return Ok(true);
        }
        if step {
            (at, of) = (at + 1, of + 1);
            continue;
        }
        match back {
            Some((from, rest)) if from < text.len() => {
                back = Some((from + 1, rest));
                (at, of) = (from + 1, rest);
            }
            _ => return Ok(false),
        }
    }
}

thread_local! {
    /// The last pattern used on this thread: a statement uses the same for every row.
    static LAST: RefCell<Option<(String, bool, Regex)>> = const { RefCell::new(None) };
}

fn with_regex(pattern: &str, fold: bool, body: impl FnOnce(&Regex) -> Value) -> Answer {
    LAST.with(|last| {
        let mut last = last.borrow_mut();
        if let Some((known, folded, regex)) = last.as_ref()
            && known == pattern
            && *folded == fold
        {
            return Ok(body(regex));
        }
        check(pattern)?;
        let built = regex::RegexBuilder::new(pattern)
            .case_insensitive(fold)
            .dot_matches_new_line(true)
            .size_limit(REGEX_BYTES_MAX)
            .build()
            .map_err(|_| fail("2201B", format!("invalid regular expression: {pattern}")))?;
        let answer = body(&built);
        *last = Some((pattern.to_owned(), fold, built));
        Ok(answer)
    })
}

/// Passes the patterns that mean the same to PostgreSQL and to us: letters, `.`, classes, groups, `|`, `*`, `+`,
/// `?`, `{n,m}`, `^`, `$`, and escaped punctuation.
fn check(pattern: &str) -> Result<(), SqlError> {
    let other = || unsupported(format!("the regular expression \"{pattern}\""));
    if pattern.starts_with("***") {
        return Err(other());
    }
    let mut letters = pattern.chars().peekable();
    let mut in_class = false;
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => match letters.next() {
                Some(escaped) if escaped.is_ascii_punctuation() && !in_class => {}
                Some('d' | 'w' | 's') if !in_class => {}
                _ => return Err(other()),
            },
            '[' if in_class => return Err(other()),
            '[' => {
                in_class = true;
                letters.next_if_eq(&'^');
                if letters.next_if_eq(&']').is_some() {
                    return Err(other());
                }
            }
            ']' if in_class => in_class = false,
            '&' | '~' if in_class && letters.peek() == Some(&letter) => return Err(other()),
            '(' if !in_class && letters.peek() == Some(&'?') => {
                letters.next();
                if letters.next() != Some(':') {
                    return Err(other());
                }
            }
            _ => {}
        }
    }
    Ok(())
}
