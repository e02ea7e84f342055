//! The page about SQL on SQLite shards names exactly what the allow-list has.

/// The lines of a rules file, by its headings.
fn sections(rules: &str) -> Vec<(&str, Vec<&str>)> {
    let mut all: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in rules.lines() {
        if let Some(heading) = line.strip_prefix("//") {
            all.push((heading.trim(), Vec::new()));
        } else if line.contains(" = ") {
            all.last_mut().expect("a heading comes first").1.push(line);
        }
    }
    all
}

fn call(line: &str) -> &str {
    line.split(" = ").next().and_then(|head| head.rsplit_once('>')).map_or(line, |(call, _)| call)
}

fn names(rules: &str, name: fn(&str) -> &str, join: &str) -> String {
    let mut text = String::new();
    for (heading, lines) in sections(rules) {
        let mut seen: Vec<String> = Vec::new();
        for line in lines.iter().filter(|line| !line.ends_with(" = -")) {
            let shown = format!("`{}`", name(call(line)));
            if !seen.contains(&shown) {
                seen.push(shown);
            }
        }
        text.push_str(&format!("- {heading}: {}.\n", seen.join(join)));
    }
    text
}

fn function(call: &str) -> &str {
    call.split('(').next().unwrap_or(call)
}

fn operator(call: &str) -> &str {
    let words: Vec<&str> = call.split_whitespace().collect();
    if words.len() == 2 { words[0] } else { words[1] }
}

fn refused(rules: &[&str]) -> String {
    let mut all = Vec::new();
    for line in rules.iter().flat_map(|rules| rules.lines()).filter(|line| line.ends_with(" = -")) {
        // Types that are refused as a whole.
        if !call(line).contains("money") && !call(line).contains("float4") {
            all.push(format!("`{}`", call(line)));
        }
    }
    format!("PostgreSQL's but not ours: {}.\n", all.join(", "))
}

#[test]
fn the_page_names_what_the_allow_list_has() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/sqlite-sql.md");
    let page = std::fs::read_to_string(path).expect("the page is there");
    let functions = include_str!("../src/rules/functions.txt");
    let operators = include_str!("../src/rules/operators.txt");
    for (part, expected) in [
        ("operators", names(operators, operator, " ")),
        ("functions", names(functions, function, ", ")),
        ("refused", refused(&[functions, operators])),
    ] {
        let start = format!("<!-- {part}: checked by crates/sql-on-sqlite/tests/docs.rs -->\n");
        let (_, rest) = page.split_once(&start).expect("the page has its marks");
        let (found, _) = rest.split_once("<!-- end -->").expect("the page has its marks");
        assert_eq!(
            found, expected,
            "docs/sqlite-sql.md is out of date: its part {part} should be\n{expected}"
        );
    }
}
