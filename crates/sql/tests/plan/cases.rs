//! Queries that were once wrong, or that random ones seldom are.

use std::sync::Arc;

use polyshard_testkit::postgres::{Durability, PgOptions, PgServer};

use crate::world::World;
use crate::{Bench, Outcome};

/// Each must be answered, and as one database answers it.
const ANSWERED: &[&str] = &[
    "SELECT count(*) FROM orders",
    "SELECT tenant_id, count(*) FROM orders GROUP BY tenant_id",
    "SELECT status, count(*), sum(customer), avg(customer) FROM orders GROUP BY status ORDER BY 2 DESC, 1 LIMIT 3",
    "SELECT o.id, i.line FROM orders o JOIN items i ON i.tenant_id = o.tenant_id AND i.order_id = o.id",
    "SELECT o.id, e.seq FROM orders o JOIN events e ON e.seq = o.id",
    "SELECT * FROM orders ORDER BY tenant_id, id LIMIT 5 OFFSET 2",
    "SELECT DISTINCT status FROM orders ORDER BY status NULLS FIRST",
    "SELECT max(id::bigint) - min(id::bigint) AS spread, count(DISTINCT status) FROM orders HAVING count(*) > 1",
    "SELECT status, row_number() OVER (ORDER BY status, tenant_id, id) FROM orders",
    "SELECT tenant_id, id, rank() OVER (PARTITION BY tenant_id ORDER BY id) FROM orders",
    "WITH big AS (SELECT * FROM orders WHERE id > 1) SELECT count(*) FROM big JOIN countries c ON \
     c.region = big.customer",
    "WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 5) \
     SELECT n.x, count(o.id) FROM n LEFT JOIN orders o ON o.id = n.x GROUP BY n.x",
    "SELECT id FROM orders UNION SELECT seq FROM events ORDER BY 1",
    "SELECT tenant_id FROM orders INTERSECT SELECT tenant_id FROM items",
    "SELECT NULL, id FROM orders UNION ALL SELECT status, seq FROM events",
    "SELECT o.tenant_id, o.id, (SELECT count(*) FROM items i WHERE i.tenant_id = o.tenant_id) FROM orders o",
    "SELECT count(*) FROM orders o WHERE EXISTS (SELECT 1 FROM events e WHERE e.seq = o.customer)",
    "SELECT o.tenant_id, o.id, x.line FROM orders o, LATERAL \
     (SELECT i.line FROM items i WHERE i.order_id = o.id ORDER BY i.tenant_id, i.line LIMIT 1) x",
    "SELECT o.tenant_id, o.status, count(e.seq) FROM orders o LEFT JOIN events e ON e.seq = o.id \
     GROUP BY o.tenant_id, o.id",
    "SELECT public.orders.id FROM public.orders, events WHERE public.orders.id = events.seq",
    "SELECT count(*) FROM orders NATURAL JOIN items",
    "SELECT tenant_id, count(*) FROM orders JOIN items USING (tenant_id) GROUP BY tenant_id",
    "SELECT id FROM orders FULL JOIN items USING (tenant_id)",
    "SELECT count(o) FROM orders o JOIN events e ON e.seq = o.id",
    "SELECT lower(status) AS status FROM orders ORDER BY status, lower(status)",
    "SELECT id AS customer FROM orders ORDER BY customer, id % 3",
    "SELECT customer % 3 AS m, count(*) FROM orders GROUP BY m ORDER BY m",
    "SELECT status, count(*) FROM orders GROUP BY ROLLUP (status), customer % 2",
    "SELECT grouping(status), status, count(*) FROM orders GROUP BY CUBE (status, customer)",
    "SELECT status, sum(count(*)) OVER (ORDER BY status) FROM orders GROUP BY status",
    "SELECT 'it''''s', E'a\\nb', $$x'y$$, count(*) FROM orders WHERE status <> 'x''''y'",
    "SELECT count(*) FILTER (WHERE status = 'a'), count(DISTINCT customer) FILTER (WHERE id > 2) FROM orders",
    "SELECT string_agg(DISTINCT status, ',' ORDER BY status DESC) FROM orders",
    "SELECT count(*), avg(id), sum(id), min(status), bool_and(id > 0) FROM orders WHERE id > 1000000",
    "SELECT * FROM (SELECT status, count(*) AS n FROM orders GROUP BY status) x JOIN countries c ON c.region = x.n",
    "SELECT id FROM orders WHERE customer > (SELECT avg(customer) FROM orders)",
    "SELECT id FROM orders WHERE (id, customer) IN (SELECT seq, \"Mixed\" FROM events)",
    "SELECT id, generate_series(1, 2) FROM orders",
    "SELECT a.id FROM orders a, orders b WHERE a.id = b.customer AND a.status = 'a' AND b.status <> 'b'",
    "SELECT * FROM countries UNION ALL SELECT status, status, id, id FROM orders",
    "VALUES (1), ((SELECT max(id) FROM orders))",
    "SELECT (SELECT count(*) FROM orders), (SELECT count(*) FROM events)",
    "SELECT array(SELECT id FROM orders ORDER BY id, tenant_id)",
    "SELECT DISTINCT ON (status) status, tenant_id, id FROM orders ORDER BY status, tenant_id, id DESC",
    "SELECT id FROM orders ORDER BY id FETCH FIRST 3 ROWS WITH TIES",
    "SELECT extract(year FROM e.at) AS y, count(*) FROM events e GROUP BY 1",
    "SELECT e.at AT TIME ZONE 'UTC', substring(e.status FROM 1 FOR 2), trim(e.status), CAST(e.seq AS \
     text) FROM events e",
    "SELECT count(*) FROM orders HAVING false",
    "SELECT 1 FROM orders LIMIT 0",
    "SELECT FROM orders",
    "WITH orders AS (SELECT seq AS id FROM events) SELECT count(*) FROM orders",
    "SELECT w.n FROM (WITH w AS (SELECT count(*) AS n FROM orders) SELECT * FROM w) w",
    "SELECT o.id FROM orders o JOIN countries c ON c.region = o.customer ORDER BY c.name, o.tenant_id, o.id LIMIT 4",
    "SELECT c.code, o.id FROM countries c LEFT JOIN orders o ON o.customer = c.region",
    "SELECT count(*) FROM countries c LEFT JOIN orders o ON o.customer = c.region AND o.id > 3 WHERE o.id IS NULL",
    "SELECT polyshard_none FROM orders",
    "SELECT id FROM orders WHERE random() < 2",
    "SELECT * FROM (SELECT 1 AS one FROM orders ORDER BY count(*)) x",
    "SELECT * FROM busy",
    "SELECT b.n, count(*) FROM busy b GROUP BY b.n ORDER BY 1 DESC",
    "SELECT * FROM busier WHERE n > 1",
    "SELECT public.busy.n FROM public.busy JOIN events e ON e.seq = busy.n",
    "SELECT x.a FROM busy AS x (t, a)",
    "WITH busy AS (SELECT seq AS n FROM events) SELECT sum(n) FROM busy",
    "SELECT status ~ '^a' AND status !~* 'B', status SIMILAR TO 'a%', status LIKE 'a!%' ESCAPE '!' FROM orders",
    "SELECT CASE customer WHEN 1 THEN 'one' WHEN 2 THEN 'two' END, customer::text || 'x', -customer % 5 \
     FROM orders WHERE customer < 100",
    "SELECT e.at - interval '1 day', e.at::date, date_trunc('hour', e.at), extract(epoch FROM e.at) FROM events e",
    "SELECT ARRAY[id, customer], (ARRAY[1, 2, 3])[2], '{1,2}'::int[] @> ARRAY[1], row(id, status) FROM orders",
    "SELECT id FROM orders WHERE (id, status) > (2, 'a')",
    "SELECT id FROM orders WHERE status COLLATE \"C\" < 'Z' ORDER BY status COLLATE \"C\", tenant_id, id",
    "SELECT position('a' IN status), overlay(status PLACING 'x' FROM 1), trim(both 'a' FROM status) FROM orders",
    "SELECT count(*) FILTER (WHERE status IS NOT NULL) OVER (ORDER BY id, tenant_id ROWS BETWEEN 1 PRECEDING AND \
     CURRENT ROW) > 0 FROM orders",
    "SELECT id, lag(id, 1, 0) OVER w FROM orders WINDOW w AS (PARTITION BY status ORDER BY tenant_id, id)",
    "SELECT o.* FROM orders o WHERE o.id = ANY (SELECT seq FROM events) AND o.id <> ALL (ARRAY[1, 2])",
    "SELECT status, array_agg(id ORDER BY id, tenant_id), stddev(customer % 10), json_agg(id ORDER BY \
     id) FROM orders GROUP BY status",
    "SELECT coalesce(o.status, e.status, 'none'), greatest(o.id, e.seq), nullif(o.id, 3) FROM orders o \
     JOIN events e ON e.seq = o.id",
    "SELECT g.n, count(o.id) FROM generate_series(1, 5) AS g (n) LEFT JOIN orders o ON o.id = g.n GROUP BY g.n",
    "SELECT u.x, count(*) FROM orders o, unnest(ARRAY[o.id, o.customer]) AS u (x) GROUP BY u.x",
    "SELECT t.x, o.id FROM (VALUES (1, 'a'), (2, 'b')) AS t (x, y) JOIN orders o ON o.id = t.x AND o.status > t.y",
    "(SELECT id FROM orders ORDER BY id, tenant_id LIMIT 3) UNION ALL (SELECT seq FROM events ORDER BY \
     seq, device LIMIT 2)",
    "SELECT sum(x) FROM (SELECT id % 10 AS x FROM orders UNION ALL SELECT seq % 10 FROM events) u",
    "SELECT EXISTS (SELECT 1 FROM orders WHERE id = 3), NOT EXISTS (SELECT 1 FROM orders WHERE id < -5)",
    "SELECT o.id FROM orders o JOIN LATERAL (SELECT max(i.qty) AS q FROM items i WHERE i.tenant_id = \
     o.tenant_id) m ON m.q > o.id",
    "SELECT o.id FROM (orders o JOIN events e ON e.seq = o.id) LEFT JOIN (items i JOIN countries c ON \
     c.region = i.qty) ON i.order_id = o.id",
    "SELECT a.n + b.n FROM (SELECT count(*) AS n FROM orders) a CROSS JOIN (SELECT count(*) AS n FROM items) b",
    "SELECT DISTINCT count(*) FROM orders GROUP BY status",
    "SELECT status AS s, count(*) AS c FROM orders GROUP BY s HAVING max(id) > 2 ORDER BY c DESC, s LIMIT 2 OFFSET 1",
    "SELECT CAST(avg(customer % 7) AS numeric(10, 3)), round(avg(customer % 7), 2), sum(customer % \
     7)::text || '!' FROM orders",
    "SELECT U&'d\\0061t\\+000061', B'101', X'1F', 1e3, .5 FROM orders",
    "SELECT tenant_id FROM orders EXCEPT SELECT tenant_id FROM items",
    "SELECT count(*) FROM orders o WHERE o.tenant_id NOT IN (SELECT i.tenant_id FROM items i WHERE i.qty > 3)",
    "SELECT sum(n) FROM (SELECT tenant_id, count(*) AS n FROM orders GROUP BY tenant_id) x",
    "SELECT x.tenant_id, x.n, i.line FROM (SELECT tenant_id, count(*) AS n FROM orders GROUP BY \
     tenant_id) x JOIN items i USING (tenant_id)",
    "SELECT min(status), max(status), min(placed), max(at) FROM orders",
    "SELECT count(*) FROM orders WHERE now() > '2000-01-01'",
    // The same value is on another shard by another map.
    "SELECT o.tenant_id, o.id FROM orders o WHERE EXISTS (SELECT 1 FROM events e WHERE e.device = o.tenant_id)",
    "SELECT o.tenant_id, o.id FROM orders o WHERE NOT EXISTS (SELECT 1 FROM events e WHERE e.device = \
     o.tenant_id AND e.seq > o.id)",
    "SELECT o.id, (SELECT count(*) FROM events e WHERE e.device = o.tenant_id) FROM orders o",
    "SELECT o.id FROM orders o WHERE o.tenant_id IN (SELECT e.device FROM events e WHERE e.device = o.tenant_id)",
    "SELECT o.id, e.seq FROM orders o, LATERAL (SELECT seq FROM events WHERE device = o.tenant_id) e",
    "SELECT i.line, (SELECT max(o.id) FROM orders o WHERE o.tenant_id = i.tenant_id AND EXISTS (SELECT 1 FROM \
     events e WHERE e.device = o.tenant_id AND e.device = i.tenant_id)) FROM items i",
    "SELECT e.seq, (SELECT sum(o.id) FROM orders o JOIN items i ON i.tenant_id = o.tenant_id WHERE o.tenant_id = \
     e.device) FROM events e",
    // An aggregate over columns of the query around it alone is that query's.
    "SELECT (SELECT max(o.id)) FROM orders o",
    "SELECT (SELECT count(o.id) FROM countries c WHERE c.code IS NOT NULL LIMIT 1), sum(o.id) FROM orders o",
    "SELECT o.status, (SELECT max(o.id) + min(c.region) FROM countries c) FROM orders o GROUP BY o.status",
    "SELECT o.tenant_id, (SELECT (SELECT sum(o.id))) FROM orders o GROUP BY o.tenant_id",
    "SELECT o.status FROM orders o GROUP BY o.status HAVING EXISTS (SELECT 1 FROM countries c WHERE c.region < \
     max(o.id))",
    "SELECT (SELECT array_agg(o.id ORDER BY o.id, o.tenant_id)) FROM orders o",
    "SELECT (SELECT count(o.id) FILTER (WHERE o.id > 2)) FROM orders o",
    "SELECT (SELECT count(g.x) FROM generate_series(1, least(max(o.id), 5)) AS g (x)) FROM orders o",
    "SELECT (SELECT count(d.code) FROM countries c JOIN countries d ON d.code = c.code AND c.region < max(o.id)) \
     FROM orders o",
    "SELECT (SELECT DISTINCT ON (max(o.id)) 1) FROM orders o",
    "SELECT (VALUES (max(o.id))) FROM orders o",
    "SELECT mode() WITHIN GROUP (ORDER BY status), percentile_disc(0.5) WITHIN GROUP (ORDER BY id) FROM orders",
];

/// Each must be refused: an answer would be one shard's.
const REFUSED: &[&str] = &[
    "SELECT (SELECT rank() OVER w WINDOW w AS (ORDER BY max(o.id))) FROM orders o",
    "SELECT id FROM orders FOR UPDATE",
    "SELECT nextval('s'), id FROM orders",
    "SELECT ctid FROM orders",
    "SELECT o.xmin FROM orders o",
    "SELECT pg_relation_size('orders'), count(*) FROM orders",
    "SELECT pg_advisory_lock(1) FROM orders",
    "SELECT set_config('a.b', 'c', false) FROM orders",
    "SELECT table_to_xml('orders', true, true, '') FROM orders",
    "WITH gone AS (DELETE FROM orders RETURNING id) SELECT count(*) FROM gone",
    "SELECT id INTO other FROM orders",
    "SELECT * FROM orders TABLESAMPLE BERNOULLI (50)",
    "SELECT somewhere.f(id) FROM orders",
    "SELECT polyshard.shard(), e.seq FROM orders o JOIN events e ON e.seq = o.id",
];

// C2, C3
#[tokio::test]
async fn known_queries_are_answered_as_one_database_does_or_refused() {
    let server =
        Arc::new(PgServer::start_with(PgOptions { durability: Durability::NoFsync, ..PgOptions::default() }));
    let world = World::new(1);
    let bench = Bench::new(&server, "cases", &world).await;
    let mut wrong = Vec::new();
    for sql in ANSWERED {
        match bench.try_query(sql, false).await {
            Outcome::Same => {}
            Outcome::SameError if sql.contains("none") => {}
            other => wrong.push(format!("{sql}\n  {other:?}")),
        }
    }
    for sql in REFUSED {
        match bench.try_query(sql, false).await {
            Outcome::Refused(_) => {}
            other => wrong.push(format!("{sql} was not refused: {other:?}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}
