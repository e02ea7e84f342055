//! Values at the edges of each type, and a small source of repeatable chance.

#![allow(dead_code, reason = "each test uses its part")]

/// A repeatable sequence: the same seed gives the same choices everywhere.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % bound
    }

    pub fn pick<'a, T>(&mut self, among: &'a [T]) -> &'a T {
        &among[self.below(among.len())]
    }
}

/// Literals of a type, by its name in pg_type; empty for a type that has none here.
pub fn edges(kind: &str) -> Vec<String> {
    let quoted = |values: &[&str], kind: &str| -> Vec<String> {
        let mut all: Vec<String> = values.iter().map(|value| format!("'{value}'::{kind}")).collect();
        all.push(format!("NULL::{kind}"));
        all
    };
    match kind {
        "bool" => quoted(&["t", "f"], "boolean"),
        "int2" => quoted(&["0", "1", "-1", "7", "32767", "-32768"], "smallint"),
        "int4" => quoted(&["0", "1", "-1", "2", "-3", "12", "2147483647", "-2147483648"], "integer"),
        "int8" => quoted(
            &["0", "1", "-1", "5", "-12", "9223372036854775807", "-9223372036854775808", "3000000000"],
            "bigint",
        ),
        "float8" => {
            quoted(&["0", "1.5", "-2.5", "0.1", "1e300", "1e-300", "123456789.125", "3"], "double precision")
        }
        "numeric" => quoted(
            &[
                "0",
                "1",
                "-1.50",
                "2.500",
                "0.00000000000000000001",
                "123456789012345678901234567890.5",
                "-7",
                "10000",
                "99999999.9999",
                "3.0001",
            ],
            "numeric",
        ),
        "text" => quoted(
            &[
                "",
                "a",
                "Hello World",
                "ÀÉ日本 ß",
                "  x ",
                "a,b,,c",
                "%",
                "_\\",
                "12",
                "2020-01-01",
                "x''y",
                "day",
                "hex",
            ],
            "text",
        ),
        "name" => quoted(&["", "pg_class", "Foo bar"], "name"),
        "bpchar" => quoted(&["", "ab", "a b"], "char(4)"),
        "date" => quoted(
            &["2000-01-01", "1999-12-31", "2020-02-29", "0001-01-01", "infinity", "9999-12-31"],
            "date",
        ),
        "timestamp" => quoted(
            &[
                "2000-01-01 00:00:00",
                "1999-12-31 23:59:59.999999",
                "2020-02-29 12:34:56.5",
                "infinity",
                "0044-03-15 BC",
            ],
            "timestamp",
        ),
        "timestamptz" => quoted(
            &["2000-01-01 00:00:00+00", "1969-07-20 20:17:40-05", "2020-02-29 12:34:56.5+02", "-infinity"],
            "timestamptz",
        ),
        "time" => quoted(&["00:00", "23:59:59.999999", "12:34:56"], "time"),
        "interval" => quoted(
            &[
                "0",
                "1 day",
                "-1 mon 2 days 03:04:05.678",
                "1 year 2 mons",
                "100:00:00",
                "-00:00:00.000001",
                "35 days",
            ],
            "interval",
        ),
        "uuid" => {
            quoted(&["00000000-0000-0000-0000-000000000000", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"], "uuid")
        }
        "bytea" => quoted(&["", "\\x00ff", "\\x616263"], "bytea"),
        "jsonb" => quoted(
            &[
                "null",
                "1.50",
                "\"x\"",
                "[]",
                "{}",
                "[1, \"a\", null, [2]]",
                "{\"a\": 1, \"b\": {\"c\": [1, 2]}}",
                "{\"a\": null}",
            ],
            "jsonb",
        ),
        "_text" => quoted(&["{}", "{a}", "{a,b}", "{b,c,1}", "{NULL,x}"], "text[]"),
        "anyarray" => quoted(&["{}", "{1,2,NULL}"], "int[]"),
        _ => Vec::new(),
    }
}
