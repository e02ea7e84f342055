//! Runs the scripts in `tests/scripts`: their names are the specification of routing, their contents the examples.
//!
//! `UPDATE_GOLDENFILES=1 cargo test -p polyshard-sql --test route` writes what is really answered; read it then.
//! A command is `route "SQL" type:value …`, with `loose` for a session that is not strict; a type with a `b` behind it
//! is sent in binary.

use std::error::Error;
use std::fmt::Write as _;

use goldenscript::{Command, Context};
use polyshard_map::{Key, KeyRange, MapName};
use polyshard_sql::{Route, Shape, SqlError, TypeOid, statements};

use crate::world::{Value, World};

type Answer<T> = Result<T, Box<dyn Error>>;

#[test]
fn scripts() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts");
    let mut paths: Vec<_> = std::fs::read_dir(&folder)
        .expect("the scripts are beside this file")
        .map(|entry| entry.expect("the folder is readable").path())
        .collect();
    paths.sort();
    assert!(paths.len() >= 15, "scripts are missing");
    for path in paths {
        println!("{}", path.display());
        let mut runner = Runner { world: World::new() };
        goldenscript::run(&mut runner, &path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    }
}

struct Runner {
    world: World,
}

impl goldenscript::Runner for Runner {
    type Command = Command;

    fn run(&mut self, command: &Command, _: &Context) -> Answer<String> {
        let mut args = command.consume_args();
        let sql = args.next_pos().ok_or("a statement is missing")?.to_owned();
        let mut params = Vec::new();
        while let Some(text) = args.next_pos() {
            params.push(param(text)?);
        }
        args.reject_next()?;
        let mut out = String::new();
        match command.name.as_str() {
            "route" => {
                let route = self.world.route(&sql, &params, true);
                if let (true, Some(short)) = (params.is_empty(), self.world.lane(&sql)) {
                    assert_eq!(Ok(short), route, "the short way leads elsewhere: {sql}");
                }
                line(&mut out, &sql, &route)?;
            }
            "loose" => line(&mut out, &sql, &self.world.route(&sql, &params, false))?,
            "describe" => match self.world.analyse(&sql, true) {
                Ok(analysis) => analysis.describe().iter().try_for_each(|line| writeln!(out, "{line}"))?,
                Err(error) => writeln!(out, "{}", said(&error))?,
            },
            "shape" => {
                let shape = Shape::of(&sql);
                let lane = if self.world.lane(&sql).is_some() { "short" } else { "long" };
                writeln!(out, "{lane}: {}", shape.as_ref().map_or("none", |shape| shape.text()))?;
            }
            "kind" => match statements(&sql) {
                Ok(all) => {
                    for statement in all {
                        writeln!(out, "{:?} <- {}", statement.kind(), statement.text())?;
                    }
                }
                Err(error) => writeln!(out, "{}", said(&error))?,
            },
            other => return Err(format!("unknown command {other}").into()),
        }
        Ok(out)
    }
}

fn param(text: &str) -> Answer<(TypeOid, Value)> {
    let (name, value) = text.split_once(':').ok_or("write a parameter as type:value")?;
    let (type_oid, binary) = match name {
        "int2" => (TypeOid::INT2, false),
        "int4" => (TypeOid::INT4, false),
        "int8" => (TypeOid::INT8, false),
        "int4b" => (TypeOid::INT4, true),
        "int8b" => (TypeOid::INT8, true),
        "text" => (TypeOid::TEXT, false),
        "varchar" => (TypeOid::VARCHAR, false),
        "bpchar" => (TypeOid::BPCHAR, false),
        "numeric" => (TypeOid::NUMERIC, false),
        "uuid" => (TypeOid::UUID, false),
        "date" => (TypeOid::DATE, false),
        "unknown" => (TypeOid::UNKNOWN, false),
        "int4s" => (TypeOid(1007), false),
        "int8s" => (TypeOid(1016), false),
        "texts" => (TypeOid(1009), false),
        other => return Err(format!("unknown type {other}").into()),
    };
    let value = match (value, binary, type_oid) {
        ("NULL", _, _) => Value::Null,
        (_, false, _) => Value::Text(value.to_owned()),
        (_, true, TypeOid::INT4) => Value::Binary(value.parse::<i32>()?.to_be_bytes().to_vec()),
        (_, true, _) => Value::Binary(value.parse::<i64>()?.to_be_bytes().to_vec()),
    };
    Ok((type_oid, value))
}

fn said(error: &SqlError) -> String {
    let hint = error.hint.as_deref().map_or(String::new(), |hint| format!(" HINT {hint}"));
    format!("{} {}{hint}", error.state, error.message)
}

fn line(out: &mut String, sql: &str, route: &Result<Route, SqlError>) -> Answer<()> {
    let text = match route {
        Err(error) => said(error),
        Ok(route) => shown(route),
    };
    let (first, rest) = text.split_once('\n').unwrap_or((&text, ""));
    writeln!(out, "{first} <- {}", sql.split_whitespace().collect::<Vec<_>>().join(" "))?;
    if !rest.is_empty() {
        writeln!(out, "{rest}")?;
    }
    Ok(())
}

fn shown(route: &Route) -> String {
    match route {
        Route::Anywhere => "anywhere".to_owned(),
        Route::ReferenceRead => "reference read".to_owned(),
        Route::ReferenceWrite => "reference write".to_owned(),
        Route::Local(shard) => format!("local {shard}"),
        Route::One { shard, keys, ranges } => format!("{shard}{}{}", shown_keys(keys), shown_ranges(ranges)),
        Route::Nowhere { maps } => format!("nowhere {}", maps[0]),
        Route::Many { shards, ranges } => {
            let shards: Vec<&str> = shards.iter().map(|shard| shard.as_str()).collect();
            format!("{}{}", shards.join("+"), shown_ranges(ranges))
        }
        Route::Split(parts) => {
            let mut text = "split".to_owned();
            for part in parts {
                let keys = shown_keys(&part.keys);
                text += &format!("\n  {}{keys} rows {:?}: {}", part.shard, part.rows, part.text);
            }
            text
        }
        Route::Everywhere => "everywhere".to_owned(),
        Route::Rekey(rekey) => format!("from {} to {}", rekey.from, rekey.to),
    }
}

fn shown_keys(all: &[(MapName, Vec<Key>)]) -> String {
    let mut text = String::new();
    for (map, keys) in all {
        let keys: Vec<String> = keys.iter().map(Key::to_string).collect();
        text += &format!(" {map}={}", keys.join(","));
    }
    text
}

fn shown_ranges(all: &[(MapName, Vec<KeyRange>)]) -> String {
    let mut text = String::new();
    for (map, ranges) in all {
        let whole = ranges.as_slice() == [KeyRange::all()];
        text += &if whole { format!(" {map}:all") } else { format!(" {map}:{}", ranges.len()) };
    }
    text
}
