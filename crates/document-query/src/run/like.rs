//! LIKE: `%` any text, `_` one character, `[a-c]` one of a set, `[^a]` one not of it.

enum Part {
    Any,
    One,
    Literal(char),
    Set { negated: bool, ranges: Vec<(char, char)> },
}

/// True when the whole text matches. Takes time proportional to text × pattern.
pub(super) fn matches(text: &str, pattern: &str, escape: Option<char>) -> bool {
    let parts = parts(pattern, escape);
    let text: Vec<char> = text.chars().collect();
    let (mut at, mut part) = (0, 0);
    // Where to resume after the last `%`, which takes one more character each time.
    let mut retry: Option<(usize, usize)> = None;
    while at < text.len() {
        match parts.get(part) {
            Some(Part::Any) => {
                retry = Some((part + 1, at));
                part += 1;
                continue;
            }
            Some(one) if accepts(one, text[at]) => {
                at += 1;
                part += 1;
                continue;
            }
            _ => {}
        }
        let Some((after, start)) = retry else { return false };
        retry = Some((after, start + 1));
        part = after;
        at = start + 1;
    }
    parts[part..].iter().all(|part| matches!(part, Part::Any))
}

/// The text before the first wildcard, and whether there is no wildcard at all.
pub(crate) fn literal_prefix(pattern: &str, escape: Option<char>) -> (String, bool) {
    let parts = parts(pattern, escape);
    let literals = parts.iter().map_while(|part| match part {
        Part::Literal(character) => Some(*character),
        _ => None,
    });
    let prefix: String = literals.collect();
    let exact = prefix.chars().count() == parts.len();
    (prefix, exact)
}

fn accepts(part: &Part, character: char) -> bool {
    match part {
        Part::Any => false,
        Part::One => true,
        Part::Literal(literal) => *literal == character,
        Part::Set { negated, ranges } => {
            ranges.iter().any(|(low, high)| (*low..=*high).contains(&character)) != *negated
        }
    }
}

fn parts(pattern: &str, escape: Option<char>) -> Vec<Part> {
    let characters: Vec<char> = pattern.chars().collect();
    let mut parts = Vec::new();
    let mut at = 0;
    while let Some(&character) = characters.get(at) {
        at += 1;
        let part = match character {
            _ if Some(character) == escape && at < characters.len() => {
                at += 1;
                Part::Literal(characters[at - 1])
            }
            '%' => Part::Any,
            '_' => Part::One,
            '[' => match set(&characters[at..]) {
                Some((set, length)) => {
                    at += length;
                    set
                }
                None => Part::Literal('['),
            },
            _ => Part::Literal(character),
        };
        parts.push(part);
    }
    parts
}

/// Reads a set behind its `[`; none when it does not close.
fn set(characters: &[char]) -> Option<(Part, usize)> {
    let negated = characters.first() == Some(&'^');
    let start = usize::from(negated);
    // A `]` right at the start is a member, as in regular expressions.
    let length = characters.get(start + 1..)?.iter().position(|character| *character == ']')?;
    let end = start + 1 + length;
    let members = &characters[start..end];
    let mut ranges = Vec::new();
    let mut at = 0;
    while at < members.len() {
        if at + 2 < members.len() && members[at + 1] == '-' {
            ranges.push((members[at], members[at + 2]));
            at += 3;
        } else {
            ranges.push((members[at], members[at]));
            at += 1;
        }
    }
    Some((Part::Set { negated, ranges }, end + 1))
}
