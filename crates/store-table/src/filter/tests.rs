//! Filters as clients write them: what they let through, what they say of keys, and what is refused.

use proptest::prelude::*;

use super::keys::Interval;
use super::*;
use crate::edm::EdmValue;
use crate::entity::Properties;
use polyshard_azure_storage::Timestamp;
use uuid::Uuid;

fn row() -> Properties {
    let guid = Uuid::parse_str("c9da6455-213d-42c9-9a79-3e9149a57833").unwrap();
    let values = [
        ("PartitionKey", EdmValue::String("p1".into())),
        ("RowKey", EdmValue::String("r'5".into())),
        ("Name", EdmValue::String("O'Brien".into())),
        ("Age", EdmValue::Int32(42)),
        ("Big", EdmValue::Int64(9_007_199_254_740_993)),
        ("Price", EdmValue::Double(1.5)),
        ("Nan", EdmValue::Double(f64::NAN)),
        ("Active", EdmValue::Boolean(true)),
        ("When", EdmValue::DateTime(Timestamp::parse_iso("2026-01-02T03:04:05.1234567Z").unwrap())),
        ("Id", EdmValue::Guid(guid)),
        ("Raw", EdmValue::Binary(vec![0, 255])),
    ];
    Properties::new(values.map(|(name, value)| (name.to_owned(), value)).into()).unwrap()
}

fn holds(text: &str) -> bool {
    let row = row();
    let filter = Filter::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    filter.matches(&|name| row.get(name).map(EdmValue::scalar))
}

#[test]
fn every_kind_of_literal_and_operator() {
    let yes = [
        "Name eq 'O''Brien'",
        "'O''Brien' eq Name",
        "Age eq 42",
        "42 le Age",
        "41 lt Age and 43 gt Age",
        "Age ge 42L",
        "Age lt 42.5",
        "Age eq 42.0",
        "Big eq 9007199254740993L",
        "Big gt 9007199254740992.0",
        "Price eq 1.5",
        "Price eq 15e-1",
        "Price lt INF and Price gt -INF",
        "Nan ne 1.0",
        "Nan ne NaN",
        "Active",
        "Active eq true",
        "not (Active eq false)",
        "When gt datetime'2026-01-02T03:04:05Z'",
        "When eq datetime'2026-01-02T03:04:05.1234567Z'",
        "Id eq guid'C9DA6455-213D-42C9-9A79-3E9149A57833'",
        "Raw eq X'00fF'",
        "Raw eq binary'00FF'",
        "(Age eq 1 or Age eq 42) and Name ne 'x'",
        "Age eq 1 and Age eq 2 or Age eq 42",
        "not Age eq 1",
        "not not Active",
        "(Age) eq (42)",
        "  ( ( Age eq 42 ) )  ",
        "true",
        "Age ne 41 and Name gt 'O'",
        "PartitionKey eq 'p1' and RowKey eq 'r''5'",
        "Active eq Active",
        "Active eq True",
        "(Age eq 42)and(Active eq True )",
        "Active ne False",
        "True",
        "(1) eq 1",
        "(1) lt Age",
        "Age eq 0042",
    ];
    for text in yes {
        assert!(holds(text), "{text}");
    }
    let no = [
        "Name eq 'o''brien'",
        "Missing eq 1",
        "Missing ne 1",
        "Missing",
        "Age eq '42'",
        "Age ne '42'",
        "Age gt true",
        "Nan eq NaN",
        "Nan lt 1.0",
        "Big eq 9007199254740992",
        "not Active",
        "false",
        "Name",
        "Raw gt X'01'",
    ];
    for text in no {
        assert!(!holds(text), "{text}");
    }
}

#[test]
fn not_binds_closer_than_and_and_that_closer_than_or() {
    assert!(holds("not false or true and false"));
    assert!(holds("true or true and false"));
    assert!(!holds("(true or true) and false"));
    assert!(!holds("not true and false"));
}

#[test]
fn what_is_no_filter_is_refused_with_its_place() {
    let bad = [
        "",
        " ",
        "Age eq",
        "eq 1",
        "Age eq 1 and",
        "(Age eq 1",
        "Age eq 1)",
        "Age = 1",
        "Age eq 'x",
        "Age eq 1 2",
        "Age eq 12x",
        "Age eq datetime'x'",
        "Age eq guid'1'",
        "Age eq X'0'",
        "Age eq X'0g'",
        "Age eq time'1'",
        "()",
        "Age eq 1..2",
        "Age eq 1e",
        "Age eq -",
        "Age eq 99999999999999999999",
        "Age eq ((1))",
        "and",
        "Age eq 1,",
        "Age eq null",
        "null ne Age",
        "1",
        "(1)",
        "'a'",
        "not (1)",
        "Age eq 42 or 1",
        "(1) and Active",
        "(1 1 1)",
        "(1 === 1)",
        "(\"a\" eq \"a\")",
        "(Name eq 'a' eq 5.0)",
    ];
    for text in bad {
        assert!(matches!(Filter::parse(text), Err(FilterError::Syntax { .. })), "{text}");
    }
    let error = Filter::parse("Größe = 1").unwrap_err();
    assert!(matches!(error, FilterError::Syntax { at: 7, .. }), "{error}");
    assert_eq!(Filter::parse("startswith(Name,'a')"), Err(FilterError::Function("startswith".into())));
}

#[test]
fn long_and_deep_filters_are_refused() {
    let many = |count| vec!["a eq 1"; count].join(" or ");
    assert!(Filter::parse(&many(COMPARISONS_MAX)).is_ok());
    assert_eq!(Filter::parse(&many(COMPARISONS_MAX + 1)), Err(FilterError::TooLong));
    let deep = |depth| format!("{}a eq 1{}", "(".repeat(depth), ")".repeat(depth));
    assert!(Filter::parse(&deep(40)).is_ok());
    assert_eq!(Filter::parse(&deep(100_000)), Err(FilterError::TooLong));
    assert_eq!(Filter::parse(&format!("{}a", "not ".repeat(100_000))), Err(FilterError::TooLong));
}

fn interval(lo: Option<&str>, hi: Option<&str>) -> Interval {
    Interval { lo: lo.map(str::to_owned), hi: hi.map(str::to_owned) }
}

#[test]
fn bounds_of_keys_are_found() {
    let bounds = |text| Filter::parse(text).unwrap().bounds();
    let found = bounds("PartitionKey eq 'p' and RowKey ge 'a' and 'c' gt RowKey and Age gt 5");
    assert_eq!(found.partition.only(), Some("p"));
    assert_eq!(found.row, interval(Some("a"), Some("c")));
    let found = bounds("PartitionKey eq 'p' or PartitionKey eq 'a' and RowKey eq 'x'");
    assert_eq!(found.partition, interval(Some("a"), Some("p")));
    assert_eq!(found.row, interval(None, None));
    assert!(bounds("PartitionKey eq 'p' and PartitionKey eq 'q'").is_empty());
    assert_eq!(
        bounds("(PartitionKey lt 'a' and PartitionKey gt 'b') or RowKey eq 'x'").row.only(),
        Some("x")
    );
    assert_eq!(bounds("not (PartitionKey eq 'p')"), KeyBounds::default());
    assert_eq!(bounds("PartitionKey eq 5"), KeyBounds::default());
}

#[test]
fn scans_pass_over_what_lies_between_keys() {
    let partitions = |text| Filter::parse(text).unwrap().partition_spans();
    let point = |text| interval(Some(text), Some(text));
    let found =
        partitions("PartitionKey eq 'p' or PartitionKey eq 'a' or PartitionKey eq 'p' and RowKey gt 'x'");
    assert_eq!(found, [point("a"), point("p")]);
    let found =
        partitions("(PartitionKey lt 'c' or PartitionKey gt 'x') and (PartitionKey ge 'b' and n eq 1)");
    assert_eq!(found, [interval(Some("b"), Some("c")), interval(Some("x"), None)]);
    let found = partitions(
        "PartitionKey le 'c' or PartitionKey ge 'b' and PartitionKey le 'd' or PartitionKey eq 'q'",
    );
    assert_eq!(found, [interval(None, Some("d")), point("q")]);
    assert_eq!(partitions("PartitionKey eq 'a' and PartitionKey eq 'b'"), []);
    for all in ["n eq 1", "PartitionKey eq 'a' or n eq 1", "not (PartitionKey eq 'a')", "PartitionKey ne 'a'"]
    {
        assert_eq!(partitions(all), [interval(None, None)], "{all}");
    }
    let rows = Filter::parse("PartitionKey eq 'p' and (RowKey eq '2' or RowKey eq '1')").unwrap().row_spans();
    assert_eq!(rows, [point("1"), point("2")]);
}

#[test]
fn conditions_on_properties_are_pushed_down_where_the_database_can_tell() {
    let values = |text: &str| {
        let condition = Filter::parse(text).unwrap().pushed_condition()?;
        let (sql, values) = condition.to_sql(3);
        // Every parameter has its place, and nothing of the filter is in the text.
        assert_eq!(sql.matches('$').count() - sql.matches("\"$format").count(), values.len(), "{sql}");
        assert!(!sql.contains("Age"), "{sql}");
        Some(values.into_iter().map(str::to_owned).collect::<Vec<_>>())
    };
    let of = |texts: &[&str]| Some(texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>());
    assert_eq!(values("PartitionKey eq 'p' and Age gt 5"), of(&["p", "5", "5", "Age"]));
    assert_eq!(values("Age eq 'old' or not Age"), of(&["old", "Age", "true", "Age"]));
    assert_eq!(values("Timestamp ge datetime'1970-01-01T00:00:01Z'"), of(&["10000000"]));
    // Doubles are compared exactly by the program; half of what is joined by `or` tells nothing.
    assert_eq!(values("Age gt 5.5"), None);
    assert_eq!(values("Age eq 'a' or Age gt 5.5"), None);
    assert_eq!(values("Age eq 'a' and Age gt 5.5"), of(&["a", "Age"]));
    // Keys alone are left to the scan.
    assert_eq!(values("PartitionKey eq 'p' and RowKey ne 'r'"), None);
}

#[test]
fn conditions_on_keys_are_pushed_down_and_the_rest_is_left() {
    let sql = |text: &str| {
        let filter = Filter::parse(text).unwrap();
        filter.condition().map(|condition| {
            let (sql, values) = condition.to_sql(3);
            format!("{sql} {values:?}")
        })
    };
    assert_eq!(sql("PartitionKey eq 'p' and RowKey gt 'a' and Age gt 5"), None);
    let expected = "(pk = $3 AND (rk = $4 OR rk = $5)) [\"p\", \"a\", \"b\"]";
    assert_eq!(sql("PartitionKey eq 'p' and (RowKey eq 'a' or 'b' eq RowKey)").as_deref(), Some(expected));
    assert_eq!(sql("PartitionKey eq 'p' or Age gt 5"), None);
    assert_eq!(sql("not (PartitionKey eq 'p' or Age gt 5)").as_deref(), Some("pk <> $3 [\"p\"]"));
    assert_eq!(sql("not (RowKey lt 'p' and Age gt 5)"), None);
    assert_eq!(sql("RowKey ne 'x' and Age ne 1").as_deref(), Some("rk <> $3 [\"x\"]"));
    assert_eq!(sql("RowKey eq 5 or RowKey eq 'x'").as_deref(), Some("(1 = 0 OR rk = $3) [\"x\"]"));
}

#[test]
fn a_range_of_keys_has_both_its_ends() {
    let between = Filter::between((Some("b"), Some("5")), (Some("d"), None)).unwrap();
    let has = |partition: &'static str, row: &'static str| {
        between.matches(&|name| match name {
            "PartitionKey" => Some(Scalar::String(partition)),
            "RowKey" => Some(Scalar::String(row)),
            _ => None,
        })
    };
    for (partition, row) in [("b", "5"), ("b", "6"), ("c", ""), ("d", "zzz")] {
        assert!(has(partition, row), "{partition} {row}");
    }
    for (partition, row) in [("a", "9"), ("b", "4"), ("d0", ""), ("e", "")] {
        assert!(!has(partition, row), "{partition} {row}");
    }
    assert_eq!(between.bounds().partition, interval(Some("b"), Some("d")));
    assert_eq!(Filter::between((None, Some("x")), (None, None)), None);
}

fn filters() -> impl Strategy<Value = String> {
    let op = prop::sample::select(vec!["eq", "ne", "gt", "ge", "lt", "le"]);
    let side = prop::sample::select(vec!["PartitionKey", "RowKey", "Age", "Missing"]);
    let value = prop::sample::select(vec!["'a'", "'b'", "'c'", "1", "2L"]);
    let leaf = (side, op, value).prop_map(|(side, op, value)| format!("{side} {op} {value}"));
    leaf.prop_recursive(4, 24, 2, |inner| {
        prop_oneof![
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a}) and ({b})")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a}) or ({b})")),
            inner.prop_map(|a| format!("not ({a})")),
        ]
    })
}

proptest! {
    /// What is pushed to the database must let every row through that the filter lets through.
    #[test]
    fn bounds_never_lose_a_row(text in filters(), partition in "[a-c]", row in "[a-c]", age in 0i32..4) {
        let filter = Filter::parse(&text).unwrap();
        let matched = filter.matches(&|name| match name {
            "PartitionKey" => Some(Scalar::String(&partition)),
            "RowKey" => Some(Scalar::String(&row)),
            "Age" => Some(Scalar::Int(i64::from(age))),
            _ => None,
        });
        let bounds = filter.bounds();
        let inside = |interval: &Interval, text: &str| {
            interval.lo.as_deref().is_none_or(|lo| lo <= text) && interval.hi.as_deref().is_none_or(|hi| text <= hi)
        };
        if matched {
            prop_assert!(inside(&bounds.partition, &partition) && inside(&bounds.row, &row), "{text}: {bounds:?}");
            let (partitions, rows) = (filter.partition_spans(), filter.row_spans());
            prop_assert!(partitions.iter().any(|span| inside(span, &partition)), "{text}: {partitions:?}");
            prop_assert!(rows.iter().any(|span| inside(span, &row)), "{text}: {rows:?}");
        }
        for spans in [filter.partition_spans(), filter.row_spans()] {
            let apart = |pair: &[Interval]| pair[1].lo.as_deref().is_some_and(|lo| pair[0].is_before(lo));
            prop_assert!(spans.windows(2).all(apart), "{text}: {spans:?}");
        }
        if let Some(condition) = filter.whole_condition() {
            let (sql, values) = condition.to_sql(1);
            let passes = pass(&sql, &values, &partition, &row);
            prop_assert!(!matched || passes, "{text}: {sql}");
        }
    }

    #[test]
    fn garbage_never_panics(text in "[ ()'a-zA-Z0-9_.eE+-]{0,80}", other in "\\PC{0,40}") {
        let _any = Filter::parse(&text);
        let _any = Filter::parse(&other);
    }
}

/// Carries out the little SQL that conditions are made of, by turning it into a filter again.
fn pass(sql: &str, values: &[&str], partition: &str, row: &str) -> bool {
    let mut text = sql.replace("1 = 0", "false").replace(" AND ", " and ").replace(" OR ", " or ");
    for (at, value) in values.iter().enumerate().rev() {
        text = text.replace(&format!("${}", at + 1), &format!("'{value}'"));
    }
    for (sql, odata) in [
        (" <> ", " ne "),
        (" >= ", " ge "),
        (" <= ", " le "),
        (" > ", " gt "),
        (" < ", " lt "),
        (" = ", " eq "),
    ] {
        text = text.replace(sql, odata);
    }
    Filter::parse(&text).unwrap().matches(&|name| match name {
        "pk" => Some(Scalar::String(partition)),
        "rk" => Some(Scalar::String(row)),
        _ => None,
    })
}
