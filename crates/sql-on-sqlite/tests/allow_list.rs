//! Every operator and function of the allow-list gives the same type, value or class of error as on PostgreSQL, with
//! values at the edges of its types; and so do random expressions made of them.

mod common;

#[path = "common/values.rs"]
mod values;

use std::collections::BTreeMap;

use common::{Answer, Pair};
use values::{Dice, edges};

/// Calls tried of each rule at most: all pairs of edge values would be thousands for some.
const CALLS_PER_RULE: usize = 40;
/// Random expressions; a failing one is printed with the number that makes it again.
const RANDOM_EXPRESSIONS: u64 = 1500;

/// One line of the rules.
struct Rule {
    head: String,
    arguments: Vec<String>,
    result: String,
    refused: bool,
    operator: bool,
}

impl Rule {
    fn call(&self, values: &[String]) -> String {
        match (self.operator, values) {
            (false, values) => match self.head.as_str() {
                // These are keywords with a grammar of their own.
                "extract" => format!(
                    "extract({} from {})",
                    values[0].trim_matches('\'').replace("'::text", ""),
                    values[1]
                ),
                "position" => format!("position({} in {})", values[1], values[0]),
                "overlay" if values.len() == 3 => {
                    format!("overlay({} placing {} from {})", values[0], values[1], values[2])
                }
                "overlay" => {
                    format!(
                        "overlay({} placing {} from {} for {})",
                        values[0], values[1], values[2], values[3]
                    )
                }
                name => format!("{name}({})", values.join(", ")),
            },
            (true, [one]) => format!("({} {one})", self.head),
            (true, [left, right]) => format!("({left} {} {right})", self.head),
            _ => unreachable!("an operator has one or two arguments"),
        }
    }
}

fn rules() -> Vec<Rule> {
    let mut all = Vec::new();
    for line in include_str!("../src/rules/operators.txt").lines() {
        let Some((head, template)) = line.split_once(" = ").filter(|_| !line.starts_with("//")) else {
            continue;
        };
        let (call, result) = head.rsplit_once('>').unwrap();
        let words: Vec<String> = call.split_whitespace().map(str::to_owned).collect();
        let (name, arguments) = match &words[..] {
            [name, argument] => (name.clone(), vec![argument.clone()]),
            [left, name, right] => (name.clone(), vec![left.clone(), right.clone()]),
            _ => panic!("{line}"),
        };
        let refused = template.trim() == "-";
        all.push(Rule { head: name, arguments, result: result.to_owned(), refused, operator: true });
    }
    for line in include_str!("../src/rules/functions.txt").lines() {
        if line.starts_with("// The system") {
            break;
        }
        let Some((head, template)) = line.split_once(" = ").filter(|_| !line.starts_with("//")) else {
            continue;
        };
        let (call, result) = head.rsplit_once('>').unwrap();
        let (name, rest) = call.split_once('(').unwrap();
        let inner = rest.trim_end().strip_suffix(')').unwrap();
        let arguments = inner.split(',').filter(|part| !part.is_empty()).map(str::to_owned).collect();
        let refused = template.trim() == "-";
        all.push(Rule {
            head: name.to_owned(),
            arguments,
            result: result.to_owned(),
            refused,
            operator: false,
        });
    }
    all
}

/// Those whose answer is another each time.
fn is_volatile(rule: &Rule) -> bool {
    (rule.head == "age" && rule.arguments.len() == 1)
        || matches!(
            rule.head.as_str(),
            "random"
                | "gen_random_uuid"
                | "now"
                | "transaction_timestamp"
                | "statement_timestamp"
                | "clock_timestamp"
        )
}

/// Units are words: other texts are refused by both in their own ways.
fn argument_edges(rule: &Rule, place: usize) -> Vec<String> {
    let units =
        ["year", "month", "day", "hour", "minute", "second", "epoch", "quarter", "week", "decade", "century"];
    match (rule.head.as_str(), place) {
        ("extract" | "date_part" | "date_trunc", 0) => {
            units.iter().map(|unit| format!("'{unit}'::text")).collect()
        }
        ("timezone", 0) if rule.arguments[0] == "text" => {
            ["UTC", "+03", "-02:30"].iter().map(|zone| format!("'{zone}'::text")).collect()
        }
        ("to_char", 1) if rule.arguments[0].starts_with("timestamp") => {
            ["YYYY-MM-DD HH24:MI:SS", "FMMonth DD", "Dy HH12 AM", "IYYY-IW Q"]
                .iter()
                .map(|pattern| format!("'{pattern}'::text"))
                .collect()
        }
        ("to_char", 1) => {
            ["999", "FM990.00", "9,999.9", "0000"].iter().map(|p| format!("'{p}'::text")).collect()
        }
        ("encode" | "decode", 1) => {
            ["hex", "base64", "escape"].iter().map(|kind| format!("'{kind}'::text")).collect()
        }
        // A text of gigabytes proves nothing.
        ("repeat" | "lpad" | "rpad", 1) => {
            ["0", "-1", "3", "12"].iter().map(|number| format!("{number}::int")).collect()
        }
        ("<<" | ">>", 1) => {
            ["0", "1", "31", "33", "63"].iter().map(|number| format!("{number}::int")).collect()
        }
        ("factorial", 0) => {
            ["0", "1", "20", "30", "-1"].iter().map(|number| format!("{number}::bigint")).collect()
        }
        ("~" | "!~" | "~*" | "!~*", 1) if rule.operator => ["a", "^H.*d$", "[a-z]+", "x|y", "l{2}"]
            .iter()
            .map(|pattern| format!("'{pattern}'::text"))
            .collect(),
        _ => edges(&rule.arguments[place]),
    }
}

fn same(theirs: &Answer, ours: &Answer) -> bool {
    // What SQLite cannot keep (NaN) is refused at run time.
    ours.agrees(theirs) || (ours.state() == Some("0A000") && theirs.state().is_none())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_rule_agrees_with_postgresql() {
    // G1, C1
    let mut pair = Pair::open().await;
    let mut dice = Dice::new(1);
    let mut wrong = Vec::new();
    let mut calls = 0;
    let mut refused = 0;
    for rule in rules().iter().filter(|rule| !is_volatile(rule)) {
        let choices: Vec<Vec<String>> =
            (0..rule.arguments.len()).map(|place| argument_edges(rule, place)).collect();
        if choices.iter().any(Vec::is_empty) {
            assert!(rule.refused, "{} {:?} has no values to be tried with", rule.head, rule.arguments);
            continue;
        }
        let all: usize = choices.iter().map(Vec::len).product();
        for number in 0..all.min(CALLS_PER_RULE) {
            let mut rest = number;
            let values: Vec<String> = choices
                .iter()
                .map(|choice| {
                    let place =
                        if all <= CALLS_PER_RULE { rest % choice.len() } else { dice.below(choice.len()) };
                    rest /= choice.len();
                    choice[place].clone()
                })
                .collect();
            let call = rule.call(&values);
            let text = format!("SELECT {call}, pg_typeof({call})::text");
            let ours = pair.lite.run(&text).await;
            calls += 1;
            if rule.refused {
                assert_eq!(ours.state(), Some("0A000"), "{text}");
                break;
            }
            let theirs = pair.postgres.run(&text).await;
            refused += usize::from(ours.state() == Some("0A000") && theirs.state().is_none());
            if !same(&theirs, &ours) {
                wrong.push(format!("{text}\n   PostgreSQL {theirs:?}\n   SQLite     {ours:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {calls}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(calls > 3000, "only {calls} calls were tried");
    assert!(refused * 20 < calls, "{refused} of {calls} calls of the allow-list are refused after all");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_expressions_agree_with_postgresql() {
    // G1, C1
    let mut pair = Pair::open().await;
    let all = rules();
    let mut by_result: BTreeMap<&str, Vec<&Rule>> = BTreeMap::new();
    for rule in all.iter().filter(|rule| !rule.refused && !is_volatile(rule)) {
        // Repeated repeating makes giants; a polymorphic argument has no type to build.
        let odd = matches!(
            rule.head.as_str(),
            "repeat" | "lpad" | "rpad" | "factorial" | "~" | "!~" | "~*" | "!~*"
        );
        if !odd && !rule.arguments.iter().any(|kind| kind == "anyarray") {
            by_result.entry(&rule.result).or_default().push(rule);
        }
    }
    let kinds: Vec<&str> = by_result.keys().copied().filter(|kind| !edges(kind).is_empty()).collect();
    let mut wrong = Vec::new();
    for seed in 0..RANDOM_EXPRESSIONS {
        let mut dice = Dice::new(seed + 1000);
        let kind = *dice.pick(&kinds);
        let expression = random(&mut dice, &by_result, kind, 3);
        let text = format!("SELECT {expression}");
        let (theirs, ours) = (pair.postgres.run(&text).await, pair.lite.run(&text).await);
        // Of two parts that both fail, either may be met first; and whether a part that does not matter is computed
        // at all (beside a NULL, or in a branch not taken) is for each to choose.
        let fails = |answer: &Answer| answer.state().is_some_and(|state| state.starts_with("22"));
        let lazy = ["NULL", "CASE", "COALESCE"].iter().any(|word| text.contains(word));
        let excused = (fails(&theirs) && fails(&ours)) || (lazy && (fails(&theirs) || fails(&ours)));
        if !same(&theirs, &ours) && !excused {
            wrong.push(format!("seed {seed}: {text}\n   PostgreSQL {theirs:?}\n   SQLite     {ours:?}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {RANDOM_EXPRESSIONS}:\n{}", wrong.len(), wrong.join("\n"));
}

fn random(dice: &mut Dice, rules: &BTreeMap<&str, Vec<&Rule>>, kind: &str, depth: usize) -> String {
    let leaf = || edges(kind);
    match rules.get(kind) {
        Some(choices) if depth > 0 && dice.below(4) > 0 => {
            if dice.below(6) == 0 {
                let (a, b) = (random(dice, rules, kind, depth - 1), random(dice, rules, kind, depth - 1));
                let test = random(dice, rules, "bool", depth - 1);
                return match dice.below(3) {
                    0 => format!("CASE WHEN {test} THEN {a} ELSE {b} END"),
                    1 => format!("COALESCE({a}, {b})"),
                    _ if !matches!(kind, "jsonb" | "_text" | "interval") => format!("GREATEST({a}, {b})"),
                    _ => format!("COALESCE({b}, {a})"),
                };
            }
            let rule = dice.pick(choices);
            let values: Vec<String> = (0..rule.arguments.len())
                .map(|place| {
                    let special = argument_edges(rule, place);
                    let own = edges(&rule.arguments[place]);
                    if special != own || own.is_empty() {
                        return dice.pick(&special).clone();
                    }
                    random(dice, rules, &rule.arguments[place], depth - 1)
                })
                .collect();
            rule.call(&values)
        }
        _ if kind == "bool" && depth > 0 => {
            let compared =
                *dice.pick(&["int4", "numeric", "text", "date", "timestamptz", "uuid", "interval"]);
            let (a, b) = (random(dice, rules, compared, depth - 1), random(dice, rules, compared, depth - 1));
            format!("({a} {} {b})", dice.pick(&["=", "<>", "<", ">", "<=", ">="]))
        }
        _ => dice.pick(&leaf()).clone(),
    }
}
