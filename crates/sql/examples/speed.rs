//! How long a small statement takes to read, analyse and route: `cargo run --release -p polyshard-sql --example speed`.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use polyshard_map::{Entry, Epoch, HashSpec, KeyType, Map, MapDefinition, MapName, Scheme, ShardId, State};
use polyshard_sql::{
    Collation, Column, Context, Generated, Lane, Maps, Param, ParamValue, Placement, Schema, Shape, Table,
    TableName, TypeOid, analyse, statements,
};

struct One(Map);

impl Maps for One {
    fn map(&self, _: &MapName) -> Option<&Map> {
        Some(&self.0)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let name = MapName::new("tenants")?;
    let definition =
        MapDefinition::new(name.clone(), KeyType::BigInt, Scheme::Hash(HashSpec::new(0, 1024)?))?;
    let entries: Vec<Entry> = (0..4)
        .map(|number| {
            Ok(Entry {
                range: definition.buckets(number * 256, number * 256 + 256)?,
                shard: ShardId::new(&format!("s{number}"))?,
                state: State::Online,
                epoch: Epoch::ZERO,
                group: None,
                lock: None,
            })
        })
        .collect::<Result<_, Box<dyn std::error::Error>>>()?;
    let maps = One(Map::build(definition, entries.into_iter(), Epoch::ZERO)?);
    let schema = schema(name);
    let path = ["public".to_owned()];
    let context = Context { schema: &schema, search_path: &path, strict: true };

    let by_parameter = "SELECT abalance FROM accounts WHERE tenant_id = $1 AND aid = $2";
    let by_literal = "SELECT abalance FROM accounts WHERE tenant_id = 4711 AND aid = 12345;";
    let parsed = statements(by_parameter)?;
    let analysis = analyse(&parsed[0], &context)?;
    let key = 4711_i64.to_be_bytes();
    let params = [ParamValue::Binary(&key), ParamValue::Binary(&key)];
    let params = params.map(|value| Param { type_oid: TypeOid::INT8, value });
    let shape = Shape::of(by_literal).ok_or("a statement has a shape")?;
    let lane = Lane::new(&shape, &context).ok_or("a shape has a lane")?;

    time("read and parse", || drop(black_box(statements(by_literal))));
    time("analyse", || drop(black_box(analyse(&parsed[0], &context))));
    time("route by parameter", || drop(black_box(analysis.route(&params, &maps))));
    time("shape", || drop(black_box(Shape::of(by_literal))));
    time("shape and route", || {
        let shape = Shape::of(by_literal);
        drop(black_box(shape.and_then(|shape| lane.route(&shape, &maps))));
    });
    Ok(())
}

fn time(what: &str, mut work: impl FnMut()) {
    const TIMES: u32 = 200_000;
    for _ in 0..TIMES / 10 {
        work();
    }
    let start = Instant::now();
    for _ in 0..TIMES {
        work();
    }
    println!("{what}: {:.2} µs", start.elapsed().as_secs_f64() * 1e6 / f64::from(TIMES));
}

fn schema(map: MapName) -> Schema {
    let column = |name: &str| Column {
        name: name.to_owned(),
        type_oid: TypeOid::INT8,
        type_mod: -1,
        type_name: "bigint".to_owned(),
        not_null: true,
        default: None,
        generated: Generated::No,
        collation: Collation::C,
    };
    let table = Table {
        name: TableName::public("accounts"),
        columns: ["tenant_id", "aid", "bid", "abalance"].map(column).to_vec(),
        primary_key: vec![0, 1],
        unique: Vec::new(),
        foreign_keys: Vec::new(),
        row_security: false,
        triggers: false,
        placement: Placement::Sharded { map, column: 0, key_type: KeyType::BigInt },
    };
    let mut schema = Schema::default();
    schema.tables.insert(table.name.clone(), Arc::new(table));
    schema
}
