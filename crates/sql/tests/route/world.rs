//! The tables and maps that the tests are about.
//!
//! Map `tenants` puts bigint t on shard s(t mod 4 + 1), as a list of the keys 0 to 99. Map `ranges` cuts integers at 0,
//! 100 and 200. Map `names` cuts texts at 'g' and 'p'; `days` cuts dates at the years 2024 and 2025; `ids` hashes
//! uuids.

use std::collections::BTreeMap;
use std::sync::Arc;

use polyshard_map::{
    Entry, Epoch, HashSpec, Key, KeyBytes, KeyRange, KeyType, Map, MapDefinition, MapName, Scheme, ShardId,
    State,
};
use polyshard_sql::{
    Analysis, Collation, Column, Context, Function, Generated, Lane, Maps, Param, ParamValue, Placement,
    Route, Schema, Shape, SqlError, Table, TableName, TypeOid, View, Volatility, analyse, statements,
};

pub struct World {
    pub schema: Schema,
    maps: BTreeMap<MapName, Map>,
}

impl Maps for World {
    fn map(&self, name: &MapName) -> Option<&Map> {
        self.maps.get(name)
    }
}

pub fn shard(number: usize) -> ShardId {
    ShardId::new(&format!("s{number}")).unwrap()
}

pub fn map_name(name: &str) -> MapName {
    MapName::new(name).unwrap()
}

fn entry(range: KeyRange, number: usize) -> Entry {
    Entry { range, shard: shard(number), state: State::Online, epoch: Epoch::ZERO, group: None, lock: None }
}

fn cut_map(name: &str, key_type: KeyType, cuts: &[Key]) -> Map {
    let definition = MapDefinition::new(map_name(name), key_type, Scheme::Range).unwrap();
    let mut bounds: Vec<KeyBytes> = vec![KeyBytes::default()];
    bounds.extend(cuts.iter().map(|key| definition.placement(key).unwrap()));
    let mut entries = Vec::new();
    for (place, lo) in bounds.iter().enumerate() {
        let range = KeyRange::new(lo.clone(), bounds.get(place + 1).cloned()).unwrap();
        entries.push(entry(range, place + 1));
    }
    Map::build(definition, entries.into_iter(), Epoch::ZERO).unwrap()
}

fn tenants() -> Map {
    let definition = MapDefinition::new(map_name("tenants"), KeyType::BigInt, Scheme::List).unwrap();
    let entries: Vec<Entry> = (0..100_i64)
        .map(|tenant| {
            let range = KeyRange::point(definition.placement(&Key::BigInt(tenant)).unwrap());
            entry(range, usize::try_from(tenant % 4).unwrap() + 1)
        })
        .collect();
    Map::build(definition, entries.into_iter(), Epoch::ZERO).unwrap()
}

fn ids() -> Map {
    let scheme = Scheme::Hash(HashSpec::new(0, 16).unwrap());
    let definition = MapDefinition::new(map_name("ids"), KeyType::Uuid, scheme).unwrap();
    let entries: Vec<Entry> =
        (0..4).map(|n| entry(definition.buckets(n * 4, n * 4 + 4).unwrap(), n as usize + 1)).collect();
    Map::build(definition, entries.into_iter(), Epoch::ZERO).unwrap()
}

fn column(name: &str, type_oid: TypeOid) -> Column {
    Column {
        name: name.to_owned(),
        type_oid,
        type_mod: -1,
        type_name: String::new(),
        not_null: name == "tenant_id",
        default: None,
        generated: Generated::No,
        collation: Collation::Deterministic,
    }
}

fn table(schema: &mut Schema, name: TableName, columns: Vec<Column>, placement: Placement) {
    let table = Table {
        name: name.clone(),
        columns,
        primary_key: Vec::new(),
        unique: Vec::new(),
        foreign_keys: Vec::new(),
        row_security: false,
        triggers: false,
        placement,
    };
    schema.tables.insert(name, Arc::new(table));
}

fn sharded(map: &str, column: usize, key_type: KeyType) -> Placement {
    Placement::Sharded { map: map_name(map), column, key_type }
}

impl World {
    pub fn new() -> World {
        let mut schema = Schema::default();
        let public = |name: &str| TableName::public(name);
        let tenant = || sharded("tenants", 0, KeyType::BigInt);
        table(
            &mut schema,
            public("orders"),
            vec![
                column("tenant_id", TypeOid::INT8),
                column("id", TypeOid::INT8),
                column("total", TypeOid::NUMERIC),
                column("note", TypeOid::TEXT),
            ],
            tenant(),
        );
        table(
            &mut schema,
            public("lines"),
            vec![
                column("tenant_id", TypeOid::INT8),
                column("order_id", TypeOid::INT8),
                column("product", TypeOid::INT4),
                column("tenant_code", TypeOid::INT4),
            ],
            tenant(),
        );
        table(
            &mut schema,
            public("Mixed Case"),
            vec![column("id", TypeOid::INT4), column("Tenant", TypeOid::INT4)],
            sharded("tenants", 1, KeyType::BigInt),
        );
        table(
            &mut schema,
            TableName { schema: "crm".to_owned(), name: "orders".to_owned() },
            vec![column("tenant_id", TypeOid::INT8), column("id", TypeOid::INT8)],
            tenant(),
        );
        let number = column("n", TypeOid::INT4);
        table(
            &mut schema,
            public("numbers"),
            vec![number, column("x", TypeOid::INT4)],
            sharded("ranges", 0, KeyType::Int),
        );
        let mut c = column("name", TypeOid::TEXT);
        c.collation = Collation::C;
        table(&mut schema, public("people_c"), vec![c], sharded("names", 0, KeyType::Text));
        let mut varchar = column("name", TypeOid::VARCHAR);
        (varchar.type_mod, varchar.type_name) = (4 + 5, "character varying(5)".to_owned());
        table(
            &mut schema,
            public("people"),
            vec![varchar, column("age", TypeOid::INT4)],
            sharded("names", 0, KeyType::Text),
        );
        table(
            &mut schema,
            public("events"),
            vec![column("day", TypeOid::DATE), column("at", TypeOid::TIMESTAMPTZ)],
            sharded("days", 0, KeyType::Date),
        );
        table(
            &mut schema,
            public("things"),
            vec![column("id", TypeOid::UUID), column("label", TypeOid::TEXT)],
            sharded("ids", 0, KeyType::Uuid),
        );
        table(
            &mut schema,
            public("countries"),
            vec![
                column("code", TypeOid::TEXT),
                column("tenant_id", TypeOid::INT8),
                column("n", TypeOid::INT4),
            ],
            Placement::Reference { declared: true },
        );
        table(
            &mut schema,
            public("settings"),
            vec![column("name", TypeOid::TEXT)],
            Placement::Local(shard(2)),
        );
        let mut view = |name: &str, columns: &[&str], definition: &str| {
            let view = View {
                name: public(name),
                columns: columns.iter().map(|name| (*name).to_owned()).collect(),
                definition: definition.to_owned(),
            };
            schema.views.insert(view.name.clone(), Arc::new(view));
        };
        view(
            "order_view",
            &["tenant", "id"],
            " SELECT orders.tenant_id AS tenant,\n    orders.id\n   FROM public.orders\n \
             WHERE (orders.total > (0)::numeric);",
        );
        view(
            "five",
            &["tenant_id", "id"],
            " SELECT o.tenant_id, o.id FROM public.orders o WHERE (o.tenant_id = 5);",
        );
        view(
            "totals",
            &["tenant_id", "total"],
            " SELECT orders.tenant_id, sum(orders.total) AS sum FROM public.orders GROUP BY orders.tenant_id;",
        );
        view(
            "top",
            &["tenant_id"],
            " SELECT orders.tenant_id FROM public.orders ORDER BY orders.id LIMIT 1;",
        );
        let mut function = |name: &str, volatility, table_free| {
            let function = Function { name: public(name), volatility, table_free };
            schema.functions.insert(function.name.clone(), Arc::new(function));
        };
        function("spent", Volatility::Stable, false);
        function("slug", Volatility::Immutable, false);
        function("new_code", Volatility::Volatile, true);
        schema.unstable_builtins.insert("random".to_owned(), Volatility::Volatile);
        schema.unstable_builtins.insert("now".to_owned(), Volatility::Stable);
        let text = |text: &str| Key::Text(text.to_owned());
        let maps = [
            tenants(),
            cut_map("ranges", KeyType::Int, &[Key::Int(0), Key::Int(100), Key::Int(200)]),
            cut_map("names", KeyType::Text, &[text("g"), text("p")]),
            cut_map(
                "days",
                KeyType::Date,
                &[KeyType::Date.parse("2024-01-01").unwrap(), KeyType::Date.parse("2025-01-01").unwrap()],
            ),
            ids(),
        ];
        let maps = maps.into_iter().map(|map| (map.definition().name().clone(), map)).collect();
        World { schema, maps }
    }

    pub fn analyse(&self, sql: &str, strict: bool) -> Result<Analysis, SqlError> {
        let path = ["public".to_owned()];
        let context = Context { schema: &self.schema, search_path: &path, strict };
        let all = statements(sql)?;
        assert_eq!(all.len(), 1, "one statement is expected: {sql}");
        analyse(&all[0], &context)
    }

    /// The short way by the statement's shape, if there is one.
    pub fn lane(&self, sql: &str) -> Option<Route> {
        let path = ["public".to_owned()];
        let context = Context { schema: &self.schema, search_path: &path, strict: true };
        let shape = Shape::of(sql)?;
        Lane::new(&shape, &context)?.route(&shape, self)
    }

    pub fn route(&self, sql: &str, params: &[(TypeOid, Value)], strict: bool) -> Result<Route, SqlError> {
        let params: Vec<Param<'_>> = params
            .iter()
            .map(|(type_oid, value)| Param {
                type_oid: *type_oid,
                value: match value {
                    Value::Null => ParamValue::Null,
                    Value::Text(text) => ParamValue::Text(text.as_bytes()),
                    Value::Binary(bytes) => ParamValue::Binary(bytes),
                },
            })
            .collect();
        self.analyse(sql, strict)?.route(&params, self)
    }
}

pub enum Value {
    Null,
    Text(String),
    Binary(Vec<u8>),
}
