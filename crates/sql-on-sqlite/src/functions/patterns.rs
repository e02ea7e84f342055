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
            with_regex(pattern, fold, |regex| Ok(Value::Int(regex.is_match(subject).into())))
        }),
        // text, pattern, replacement, flags
        strict("pg_regexp_replace", 4, |a| {
            let (subject, pattern) = (text(&a[0])?, text(&a[1])?);
            let (mut all, mut fold) = (false, false);
            for flag in text(&a[3])?.chars() {
                match flag {
                    'g' => all = true,
                    'i' => fold = true,
                    'c' => fold = false,
                    _ => return Err(unsupported(format!("the flag {flag} of regexp_replace"))),
                }
            }
            let replacement = Replacement::parse(text(&a[2])?)?;
            if !is_as_long_as_any(pattern) {
                return Err(unsupported(format!("regexp_replace by the regular expression \"{pattern}\"")));
            }
            with_regex(pattern, fold, |regex| {
                if all && regex.is_match("") {
                    return Err(unsupported(format!("regexp_replace of nothing, by \"{pattern}\"")));
                }
                let limit = usize::from(!all);
                Ok(Value::Text(regex.replacen(subject, limit, &replacement).into_owned()))
            })
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

fn with_regex(pattern: &str, fold: bool, body: impl FnOnce(&Regex) -> Answer) -> Answer {
    LAST.with(|last| {
        let mut last = last.borrow_mut();
        if let Some((known, folded, regex)) = last.as_ref()
            && known == pattern
            && *folded == fold
        {
            return body(regex);
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
        answer
    })
}

/// What takes the place of a match: texts, and the match itself for `\&`.
struct Replacement(Vec<Option<String>>);

impl Replacement {
    fn parse(text: &str) -> Result<Replacement, SqlError> {
        let mut parts = vec![Some(String::new())];
        let mut letters = text.chars();
        let add = |parts: &mut Vec<Option<String>>, letter: char| match parts.last_mut() {
            Some(Some(text)) => text.push(letter),
            _ => parts.push(Some(letter.to_string())),
        };
        while let Some(letter) = letters.next() {
            match (letter, letter == '\\') {
                (letter, false) => add(&mut parts, letter),
                (_, true) => match letters.next() {
                    Some('&') => parts.push(None),
                    Some('\\') => add(&mut parts, '\\'),
                    // The patterns that are passed have no groups; of other letters PostgreSQL keeps both.
                    Some(digit) if digit.is_ascii_digit() => {
                        return Err(unsupported(format!("the group \\{digit} in regexp_replace")));
                    }
                    Some(other) => {
                        add(&mut parts, '\\');
                        add(&mut parts, other);
                    }
                    None => add(&mut parts, '\\'),
                },
            }
        }
        Ok(Replacement(parts))
    }
}

impl regex::Replacer for &Replacement {
    fn replace_append(&mut self, found: &regex::Captures<'_>, out: &mut String) {
        for part in &self.0 {
            out.push_str(part.as_deref().unwrap_or(&found[0]));
        }
    }
}

/// Whether the first match that is found is also the longest, as PostgreSQL takes it: without groups and choices, and
/// with one part at most that may be longer or shorter.
fn is_as_long_as_any(pattern: &str) -> bool {
    let mut letters = pattern.chars().peekable();
    let (mut in_class, mut variable) = (false, 0);
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => drop(letters.next()),
            '[' => in_class = true,
            ']' => in_class = false,
            _ if in_class => {}
            '(' | ')' | '|' => return false,
            '*' | '+' | '?' | '{' => {
                variable += 1;
                while letter == '{' && letters.next_if(|next| *next != '}').is_some() {}
                letters.next_if(|next| letter == '{' && *next == '}');
                // Another mark behind it means the shortest, or nothing.
                if letters.peek().is_some_and(|next| matches!(next, '*' | '+' | '?' | '{')) {
                    return false;
                }
            }
            _ => {}
        }
    }
    variable <= 1
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
