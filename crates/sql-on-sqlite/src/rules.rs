//! The allow-list: every operator and function that SQLite shards know, with its types and how SQLite computes it.
//! A line with `-` is one that PostgreSQL has and SQLite shards refuse; it is listed so that the choice among
//! candidates is PostgreSQL's own.

use std::collections::HashMap;
use std::sync::OnceLock;

use polyshard_sql::TypeOid;

use crate::types;

/// One operator or function.
#[derive(Debug)]
pub(crate) struct Rule {
    pub arguments: Vec<TypeOid>,
    pub result: TypeOid,
    /// SQLite's expression: `{0}`, `{1}` are the arguments, `{zone}` the session's time zone, `{now}` the
    /// transaction's time.
    pub template: &'static str,
}

impl Rule {
    pub fn is_refused(&self) -> bool {
        self.template == "-"
    }
}

/// `name(types)>result = template`, or `left op right>result = template`.
const FUNCTIONS: &str = include_str!("rules/functions.txt");
const OPERATORS: &str = include_str!("rules/operators.txt");

type Rules = HashMap<&'static str, Vec<Rule>>;

pub(crate) fn functions() -> &'static Rules {
    static RULES: OnceLock<Rules> = OnceLock::new();
    RULES.get_or_init(|| read(FUNCTIONS, function))
}

/// Prefix operators have one argument, others two.
pub(crate) fn operators() -> &'static Rules {
    static RULES: OnceLock<Rules> = OnceLock::new();
    RULES.get_or_init(|| read(OPERATORS, operator))
}

fn read(text: &'static str, parse: fn(&'static str) -> (&'static str, Vec<TypeOid>)) -> Rules {
    let mut rules = Rules::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with("//")) {
        let (head, template) = line.split_once(" = ").expect("a rule has ' = '");
        let (call, result) = head.rsplit_once('>').expect("a rule has a result");
        let (name, arguments) = parse(call);
        let rule = Rule { arguments, result: type_of(result.trim()), template: template.trim() };
        rules.entry(name).or_default().push(rule);
    }
    rules
}

fn function(call: &'static str) -> (&'static str, Vec<TypeOid>) {
    let (name, rest) = call.split_once('(').expect("a function has arguments in parentheses");
    let inner = rest.trim_end().strip_suffix(')').expect("a function has arguments in parentheses");
    (name, inner.split(',').filter(|part| !part.is_empty()).map(|part| type_of(part.trim())).collect())
}

fn operator(call: &'static str) -> (&'static str, Vec<TypeOid>) {
    let words: Vec<&str> = call.split_whitespace().collect();
    match words[..] {
        [name, argument] => (name, vec![type_of(argument)]),
        [left, name, right] => (name, vec![type_of(left), type_of(right)]),
        _ => panic!("an operator has one or two arguments: {call}"),
    }
}

fn type_of(name: &str) -> TypeOid {
    types::by_name(name).unwrap_or_else(|| panic!("the rules name an unknown type {name}"))
}

/// How the choice among candidates ends.
pub(crate) enum Choice<'r> {
    One(&'r Rule),
    None,
    Several,
}

/// PostgreSQL's own way to choose among overloads.
pub(crate) fn choose<'r>(candidates: impl Iterator<Item = &'r Rule>, given: &[TypeOid]) -> Choice<'r> {
    let unknown = TypeOid::UNKNOWN;
    let fits = |rule: &&Rule| {
        rule.arguments.len() == given.len()
            && rule.arguments.iter().zip(given).all(|(to, from)| can_become(*from, *to))
    };
    let mut left: Vec<&Rule> = candidates.filter(fits).collect();
    if let Some(exact) = left.iter().find(|rule| rule.arguments == given) {
        return Choice::One(exact);
    }
    if let [a, b] = given
        && (*a == unknown) != (*b == unknown)
    {
        // A literal beside a known type is first taken to be of that type.
        let known = if *a == unknown { *b } else { *a };
        if let Some(same) = left.iter().find(|rule| rule.arguments == [known, known]) {
            return Choice::One(same);
        }
    }
    if left.len() <= 1 {
        return left.pop().map_or(Choice::None, Choice::One);
    }
    let keep_best = |left: &mut Vec<&'r Rule>, score: &dyn Fn(&Rule) -> usize| {
        let best = left.iter().map(|rule| score(rule)).max().unwrap_or(0);
        left.retain(|rule| score(rule) == best);
    };
    keep_best(&mut left, &|rule| rule.arguments.iter().zip(given).filter(|(to, from)| to == from).count());
    if left.len() > 1 {
        keep_best(&mut left, &|rule| {
            let pairs = rule.arguments.iter().zip(given).filter(|(_, from)| **from != unknown);
            pairs
                .filter(|(to, from)| {
                    to == from
                        || (types::is_preferred(**to) && types::category(**to) == types::category(**from))
                })
                .count()
        });
    }
    if left.len() > 1 && given.contains(&unknown) {
        for (place, _) in given.iter().enumerate().filter(|(_, from)| **from == unknown) {
            let categories: Vec<char> =
                left.iter().map(|rule| types::category(rule.arguments[place])).collect();
            let category = match categories.iter().all(|category| *category == categories[0]) {
                true => categories[0],
                false if categories.contains(&'S') => 'S',
                false => continue,
            };
            left.retain(|rule| types::category(rule.arguments[place]) == category);
            if left.iter().any(|rule| types::is_preferred(rule.arguments[place])) {
                left.retain(|rule| types::is_preferred(rule.arguments[place]));
            }
        }
        if left.len() > 1 {
            // All known ones of one type: the unknown ones are taken to be of it too.
            let mut known = given.iter().filter(|from| **from != unknown);
            if let Some(first) = known.next()
                && known.all(|other| other == first)
            {
                let guess: Vec<&Rule> = left
                    .iter()
                    .filter(|rule| rule.arguments.iter().all(|to| can_become(*first, *to)))
                    .copied()
                    .collect();
                if guess.len() == 1 {
                    left = guess;
                }
            }
        }
    }
    match left[..] {
        [one] => Choice::One(one),
        [] => Choice::None,
        _ => Choice::Several,
    }
}

/// Whether a value becomes the type by itself.
pub(crate) fn can_become(from: TypeOid, to: TypeOid) -> bool {
    if from == TypeOid::UNKNOWN || from == to || to == types::oid::ANY || to == types::oid::ANYELEMENT {
        return true;
    }
    if to == types::oid::ANYARRAY {
        return types::is_array(from);
    }
    if to == types::oid::ANYNONARRAY {
        return !types::is_array(from);
    }
    types::cast_context(from, to) == Some(types::CastContext::Implicit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_can_be_read_and_is_listed_once() {
        for rules in [functions(), operators()] {
            for (name, overloads) in rules {
                for (place, rule) in overloads.iter().enumerate() {
                    let same = overloads[..place].iter().any(|other| other.arguments == rule.arguments);
                    assert!(!same, "{name} {:?} is listed twice", rule.arguments);
                }
            }
        }
    }
}
