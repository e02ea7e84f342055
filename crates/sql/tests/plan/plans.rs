//! What the shards are asked: each faster plan, and what must not be pushed down.

use polyshard_sql::{Context, Mode, Plan, SqlState, TableName, View, plan, statements};

use crate::schema_of;
use crate::world::World;

/// Planned over the first world, which has bigint keys.
fn planned(sql: &str) -> Plan {
    planned_at(sql, &[], None)
}

fn planned_at(sql: &str, literals: &[&str], now: Option<&str>) -> Plan {
    let schema = schema_of(&World::new(0));
    let path = ["public".to_owned()];
    let context = Context { schema: &schema, search_path: &path, strict: true };
    let literals: Vec<String> = literals.iter().map(|literal| (*literal).to_owned()).collect();
    plan(&statements(sql).unwrap()[0], &context, &literals, now).unwrap()
}

#[track_caller]
fn assert_concat(sql: &str) {
    let plan = planned(sql);
    assert_eq!(plan.mode, Mode::Concat, "{plan:#?}");
    assert_eq!(plan.fragments.len(), 1);
}

/// One fragment whose text has these parts, and is combined by a statement with those.
#[track_caller]
fn assert_one(sql: &str, fragment: &[&str], combine: &[&str]) {
    let plan = planned(sql);
    assert_eq!(plan.mode, Mode::Combine, "{plan:#?}");
    assert_eq!(plan.fragments.len(), 1, "{plan:#?}");
    for part in fragment {
        assert!(plan.fragments[0].sql.contains(part), "no {part} in {}", plan.fragments[0].sql);
    }
    for part in combine {
        assert!(plan.combine.contains(part), "no {part} in {}", plan.combine);
    }
}

#[test]
fn rows_that_need_no_others_are_only_put_together() {
    assert_concat("SELECT id, upper(status) FROM orders WHERE id > 3");
    assert_concat("SELECT o.id, i.line FROM orders o JOIN items i ON i.tenant_id = o.tenant_id");
    assert_concat("SELECT o.id, i.line FROM orders o, items i WHERE i.tenant_id = o.tenant_id");
    assert_concat("SELECT id FROM orders JOIN items USING (tenant_id)");
    assert_concat("SELECT o.id FROM orders o LEFT JOIN items i ON i.tenant_id = o.tenant_id AND i.qty > 1");
    assert_concat("SELECT o.id, c.name FROM orders o LEFT JOIN countries c ON c.region = o.customer");
    assert_concat("SELECT tenant_id, count(*) FROM orders GROUP BY tenant_id HAVING count(*) > 1");
    assert_concat("SELECT DISTINCT tenant_id, status FROM orders");
    assert_concat("SELECT rank() OVER (PARTITION BY tenant_id ORDER BY id) FROM orders");
    assert_concat(
        "SELECT id FROM orders o WHERE EXISTS (SELECT 1 FROM items i WHERE i.tenant_id = o.tenant_id)",
    );
    assert_concat("SELECT id, (SELECT max(qty) FROM items i WHERE i.tenant_id = o.tenant_id) FROM orders o");
    assert_concat("SELECT tenant_id FROM orders UNION SELECT tenant_id FROM items");
    assert_concat(
        "WITH w AS (SELECT * FROM orders) SELECT w.id FROM w JOIN items i ON i.tenant_id = w.tenant_id",
    );
    assert_concat("SELECT id FROM orders WHERE customer IN (SELECT region FROM countries)");
    assert_concat("SELECT polyshard.shard(), count(*) FROM orders GROUP BY 1");
}

#[test]
fn what_joins_rows_of_different_shards_is_combined() {
    for sql in [
        "SELECT o.id FROM orders o JOIN items i ON i.order_id = o.id",
        "SELECT o.id FROM orders o JOIN events e ON e.seq = o.id",
        "SELECT c.code, o.id FROM countries c LEFT JOIN orders o ON o.customer = c.region",
        "SELECT o.id FROM orders o FULL JOIN items i ON i.qty = o.id",
        "SELECT rank() OVER (ORDER BY id) FROM orders",
        "SELECT id FROM orders o WHERE NOT EXISTS (SELECT 1 FROM items i WHERE i.order_id = o.id)",
        "SELECT id FROM orders WHERE customer > (SELECT avg(customer) FROM orders)",
        "SELECT id FROM orders UNION ALL SELECT region FROM countries",
        "SELECT id FROM orders UNION SELECT qty FROM items",
        "SELECT i.tenant_id, count(*) FROM orders o LEFT JOIN items i ON i.tenant_id = o.tenant_id \
         GROUP BY i.tenant_id",
        "SELECT id FROM orders WHERE customer IN (SELECT region FROM countries ORDER BY code LIMIT 1)",
    ] {
        assert_eq!(planned(sql).mode, Mode::Combine, "{sql}");
    }
}

#[test]
fn groups_are_counted_on_each_shard_first() {
    assert_one(
        "SELECT status, count(*), avg(customer), min(id) FROM orders WHERE id > 1 GROUP BY status HAVING count(*) > 2",
        &["count(*), sum(customer), count(customer), min(id) FROM orders WHERE id > 1 GROUP BY 1"],
        &[
            "(sum(ps_0.a1) / sum(ps_0.a2)) AS \"avg\"",
            "GROUP BY ps_0.g0 HAVING (COALESCE(sum(ps_0.a0), 0)::BIGINT) > 2",
        ],
    );
    assert_one(
        "SELECT count(*) FROM orders",
        &["SELECT count(*) FROM orders"],
        &["COALESCE(sum(ps_0.a0), 0)"],
    );
    // A DISTINCT aggregate needs its values, each once.
    assert_one(
        "SELECT count(DISTINCT status), sum(id) FROM orders",
        &["SELECT (status), sum(id) FROM orders GROUP BY 1"],
        &["count(DISTINCT ps_0.d0)"],
    );
    assert_one("SELECT status FROM orders GROUP BY ROLLUP (status)", &["GROUP BY 1"], &["ROLLUP (ps_0.g0)"]);
}

#[test]
fn the_first_rows_are_found_on_each_shard_first() {
    assert_one(
        "SELECT id FROM orders ORDER BY lower(status) DESC NULLS LAST, id LIMIT 10 OFFSET 5",
        &["lower(status) FROM orders ORDER BY lower(status) DESC NULLS LAST, id LIMIT 15"],
        &["ORDER BY ps_0.h0 DESC NULLS LAST, ps_0.c0 LIMIT 10 OFFSET 5"],
    );
    // Ties must all come.
    let ties = planned("SELECT id FROM orders ORDER BY id FETCH FIRST 3 ROWS WITH TIES");
    assert!(!ties.fragments[0].sql.contains("LIMIT"), "{ties:#?}");
    assert_one(
        "SELECT DISTINCT status FROM orders",
        &["SELECT DISTINCT status"],
        &["SELECT DISTINCT ps_0.c0"],
    );
    // A LIMIT that is a parameter.
    let plan = planned_at("SELECT id FROM orders ORDER BY id LIMIT $1", &["'7'::bigint"], None);
    assert!(plan.fragments[0].sql.contains("LIMIT 7"), "{plan:#?}");
}

#[test]
fn only_needed_columns_and_rows_are_fetched() {
    let plan = planned(
        "SELECT o.status, e.value FROM orders o JOIN events e ON e.seq = o.id WHERE o.customer = 3 AND random() < 0.5",
    );
    assert_eq!(
        plan.fragments[0].sql,
        "SELECT \"id\", \"customer\", \"status\" FROM \"public\".\"orders\" AS o WHERE (o.customer = 3)"
    );
    assert_eq!(
        plan.fragments[1].sql,
        "SELECT \"seq\", \"status\", \"value\" FROM \"public\".\"events\" AS e"
    );
    assert!(plan.combine.contains("random() < 0.5"));
    assert!(plan.combine.contains("pg_temp.ps_0 o JOIN pg_temp.ps_1 e"), "{plan:#?}");
    // The filter of a nullable side decides after the join.
    let outer = planned("SELECT 1 FROM orders o LEFT JOIN events e ON e.seq = o.id WHERE e.status IS NULL");
    assert!(!outer.fragments[1].sql.contains("WHERE"), "{outer:#?}");
    let on = planned("SELECT 1 FROM orders o LEFT JOIN events e ON e.seq = o.id AND e.status = 'a'");
    assert!(on.fragments[1].sql.contains("WHERE (e.status = 'a')"), "{on:#?}");
}

#[test]
fn the_time_is_one_constant_for_all_shards() {
    let sql = "SELECT seq FROM events WHERE at > now() - interval '1 day'";
    assert_eq!(planned(sql).mode, Mode::Combine, "each shard would have its own time");
    let plan = planned_at(sql, &[], Some("2024-05-06 07:08:09+00"));
    assert_eq!(plan.mode, Mode::Concat);
    assert!(
        plan.fragments[0].sql.contains("('2024-05-06 07:08:09+00'::TIMESTAMPTZ) - INTERVAL '1 day'"),
        "{plan:#?}"
    );
}

#[test]
fn texts_with_quotes_stay_what_they_are() {
    let plan =
        planned_at("SELECT id FROM orders WHERE status = $1 OR status = 'a''''b'", &["'c''''d'::text"], None);
    assert!(plan.fragments[0].sql.contains(r"E'a\'\'b'"), "{plan:#?}");
    assert!(plan.fragments[0].sql.contains(r"(E'c\'\'d'::TEXT)"), "{plan:#?}");
}

#[test]
fn a_shards_name_is_put_in_for_each_shard() {
    let plan = planned("SELECT polyshard.shard() AS s, 'polyshard.shard()' AS t, 'shard_0' AS u FROM orders");
    let shard = polyshard_map::ShardId::new("s7").unwrap();
    let text = plan.fragments[0].sql_on(&shard);
    assert!(text.contains("'s7'::text AS s, 'polyshard.shard()' AS t, 'shard_0' AS u"), "{text}");
}

/// Statements made to break the walk: very deep, very long, or growing without end.
#[test]
fn deep_and_long_statements_are_planned_or_refused() {
    let chain = |item: &str, count: usize, with: &str| vec![item; count].join(with);
    let nested = |open: &str, inner: &str, close: &str, count: usize| {
        format!("{}{inner}{}", open.repeat(count), close.repeat(count))
    };
    for count in [150, 1_900] {
        let texts = [
            format!("SELECT id FROM orders WHERE {}", chain("id = 5", count, " OR ")),
            format!("SELECT sum({}), status FROM orders GROUP BY status", chain("id", count, " + ")),
            format!("SELECT id FROM orders WHERE {}", nested("NOT ", "id = 5", "", count)),
            format!("SELECT {} FROM orders ORDER BY 1", nested("abs(", "id", ")", count)),
            format!(
                "SELECT id FROM orders WHERE {}",
                nested("EXISTS (SELECT 1 FROM items WHERE ", "true", ")", count)
            ),
            format!("SELECT * FROM {} x", nested("(SELECT * FROM ", "orders", " x)", count)),
            chain("SELECT id FROM orders", count, " UNION "),
        ];
        for sql in texts {
            let thread = std::thread::Builder::new().stack_size(2 << 20).spawn(move || {
                let schema = schema_of(&World::new(0));
                let path = ["public".to_owned()];
                let context = Context { schema: &schema, search_path: &path, strict: true };
                // Either answer will do; a stack that runs out would end the process.
                let _ = statements(&sql).and_then(|all| plan(&all[0], &context, &[], None));
            });
            thread.unwrap().join().unwrap();
        }
    }
}

/// A view of two views of two views … would grow beyond all bounds.
#[test]
fn views_that_double_are_refused() {
    let mut schema = schema_of(&World::new(0));
    let view = |name: &str, definition: String| View {
        name: TableName::public(name),
        columns: vec!["id".to_owned()],
        definition,
    };
    let first = view("v0", "SELECT id FROM public.orders".to_owned());
    schema.views.insert(first.name.clone(), first.into());
    for at in 1..30 {
        let below = at - 1;
        let next = view(&format!("v{at}"), format!("SELECT a.id FROM public.v{below} a, public.v{below} b"));
        schema.views.insert(next.name.clone(), next.into());
    }
    let path = ["public".to_owned()];
    let context = Context { schema: &schema, search_path: &path, strict: true };
    let planned = |sql: &str| plan(&statements(sql).unwrap()[0], &context, &[], None);
    assert!(planned("SELECT * FROM v3").is_ok());
    assert_eq!(planned("SELECT * FROM v29").unwrap_err().state, SqlState::FEATURE_NOT_SUPPORTED);
}
