//! The short way by a statement's shape against the long one: where there is a short way, both lead to the same place.

use polyshard_map::{Key, MapName};
use polyshard_sql::{Route, SqlError};

use crate::generate::Generator;
use crate::world::World;

const SEEDS: u64 = 4000;

/// Statements whose literals stand where a parameter means something else, or nothing.
const ODD: &[&str] = &[
    "SELECT * FROM orders WHERE tenant_id = 5 AND 1 = 0",
    "SELECT * FROM orders WHERE tenant_id = 5 ORDER BY 1 LIMIT 1 OFFSET 2",
    "SELECT * FROM orders WHERE tenant_id = 5 AND tenant_id = 6",
    "SELECT * FROM orders WHERE tenant_id IN (5, 5)",
    "SELECT * FROM orders WHERE tenant_id = 5.0",
    "SELECT * FROM orders WHERE tenant_id = 5.5",
    "SELECT * FROM orders WHERE tenant_id = - 5",
    "SELECT * FROM orders WHERE tenant_id = 3-5",
    "SELECT * FROM orders WHERE tenant_id = 1-1",
    "SELECT * FROM orders WHERE tenant_id = 5e0",
    "SELECT * FROM orders WHERE tenant_id = 0x10",
    "SELECT * FROM orders WHERE tenant_id = 99999999999999999999",
    "SELECT * FROM orders WHERE tenant_id = '5'",
    "SELECT * FROM orders WHERE tenant_id = ' 5 '",
    "SELECT * FROM orders WHERE tenant_id = 'five'",
    "SELECT * FROM orders WHERE tenant_id = '5'::bigint",
    "SELECT * FROM orders WHERE tenant_id = '5'::text::bigint",
    "SELECT * FROM orders WHERE tenant_id = bigint '5'",
    "SELECT * FROM orders WHERE tenant_id = 5 AND note = 'a' 'b'",
    "SELECT * FROM orders WHERE tenant_id = 5 AND note = 'a'\n'b'",
    "SELECT * FROM orders WHERE tenant_id = 5 AND note = E'\\'' AND id = 1",
    "SELECT * FROM orders WHERE tenant_id = 5 -- AND tenant_id = 6",
    "SELECT * FROM orders /* ' */ WHERE tenant_id = 5 /* ' */",
    "SELECT '1' \"tenant_id = 7\" FROM orders WHERE tenant_id = 5;",
    "SELECT 5 AS tenant_id, 1",
    "SELECT o.id FROM orders o, (SELECT 5 AS t) x WHERE o.tenant_id = x.t",
    "SELECT * FROM orders WHERE tenant_id = ANY (ARRAY[5, 5])",
    "SELECT * FROM orders WHERE tenant_id = ANY ('{5,5}')",
    "SELECT * FROM orders WHERE (tenant_id, id) = (5, 1)",
    "SELECT * FROM orders WHERE tenant_id BETWEEN 5 AND 5",
    "SELECT * FROM orders WHERE tenant_id = 5 AND total = numeric(10,2) '1'",
    "SELECT total::numeric(10,2) FROM orders WHERE tenant_id = 5",
    "SELECT * FROM orders WHERE tenant_id = 5 FETCH FIRST 1 ROWS ONLY",
    "SELECT * FROM people WHERE name = 'b''b'",
    "SELECT * FROM people WHERE name = 'é'",
    "SELECT * FROM events WHERE day = '2024-02-29'",
    "SELECT * FROM events WHERE day = '2024-02-30'",
    "SELECT * FROM events WHERE day = 'tomorrow'",
    "SELECT * FROM things WHERE id = '67E5504410B1426F9247BB680E5FE0C8'",
    "SELECT * FROM things WHERE id = 5",
    "INSERT INTO orders VALUES (5, 1, 2.5, 'x')",
    "INSERT INTO orders VALUES ('5', 1, 2.5, 'x')",
    "INSERT INTO orders VALUES (5.4, 1, 2.5, 'x')",
    "INSERT INTO orders VALUES (NULL, 1, 2.5, 'x')",
    "INSERT INTO orders VALUES (99999999999999999999, 1, 2.5, 'x')",
    "INSERT INTO orders VALUES (5, 1, 1, 'x'), (5, 2, 1, 'y')",
    "INSERT INTO orders VALUES (5, 1, 1, 'x'), (6, 2, 1, 'y')",
    "INSERT INTO orders (id, tenant_id) SELECT 1, 5",
    "INSERT INTO people VALUES ('a name that is too long')",
    "INSERT INTO people VALUES ('bob     ')",
    "UPDATE orders SET tenant_id = 5 WHERE tenant_id = 5",
    "UPDATE orders SET tenant_id = 6 WHERE tenant_id = 5",
    "UPDATE orders SET note = 'x' WHERE id = 5",
    "DELETE FROM orders WHERE tenant_id = 5 RETURNING 1",
    "WITH x AS (SELECT 5 AS t) SELECT * FROM orders, x WHERE tenant_id = t",
    "SELECT * FROM countries WHERE code = 'ch'",
    "SELECT 1 + 1, 'a'",
];

/// Whether both ways are one. Only the long way sees that a condition on literals alone never holds: it may know that
/// some of the keys do not matter, or none. Then every shard gives the answer, that of the keys too.
pub fn agrees(short: &Route, long: &Result<Route, SqlError>) -> bool {
    let has_all = |mine: &[(MapName, Vec<Key>)], theirs: &[(MapName, Vec<Key>)]| {
        theirs.iter().all(|(map, keys)| {
            mine.iter().any(|(known, mine)| known == map && keys.iter().all(|key| mine.contains(key)))
        })
    };
    match (short, long) {
        (Route::One { .. }, Ok(Route::Nowhere { .. })) => true,
        (Route::One { shard, keys, ranges }, Ok(Route::One { shard: home, keys: needed, ranges: all })) => {
            shard == home && ranges == all && has_all(keys, needed)
        }
        (short, long) => long.as_ref() == Ok(short),
    }
}

/// Whether there was a short way.
fn check(world: &World, sql: &str) -> bool {
    let Some(short) = world.lane(sql) else { return false };
    let long = world.route(sql, &[], true);
    assert!(agrees(&short, &long), "the short way leads elsewhere: {sql}\n{short:?}\n{long:?}");
    assert!(matches!(short, Route::One { .. } | Route::Anywhere | Route::ReferenceRead), "{sql}: {short:?}");
    true
}

// C2: what is remembered of a shape leads every statement of it where its own text would.
#[test]
fn the_short_way_leads_where_the_long_one_does() {
    let world = World::new();
    let odd = ODD.iter().filter(|sql| check(&world, sql)).count();
    let (mut reads, mut writes) = (0, 0);
    for seed in 0..SEEDS {
        reads += usize::from(check(&world, &Generator::new(seed).select()));
        writes += usize::from(check(&world, &Generator::new(seed).write()));
    }
    println!("short: {odd} of {} odd ones; of {SEEDS}, {reads} reads and {writes} writes", ODD.len());
    assert!(odd >= 15 && reads > 200 && writes > 100, "{odd} {reads} {writes}");
}
