//! Tables and rows by seed: NULLs, duplicates, Unicode and extremes; the same on one database and cut over several.

use std::fmt::Write as _;

/// A small generator of numbers: the same seed gives the same world everywhere.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(0x1234_5678_9ABC_DEF1))
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// True in so many of a hundred cases.
    pub fn percent(&mut self, chance: usize) -> bool {
        self.below(100) < chance
    }

    pub fn pick<'a, T>(&mut self, among: &'a [T]) -> &'a T {
        &among[self.below(among.len())]
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Int,
    Big,
    Text,
    Numeric,
    Double,
    Bool,
    Date,
    Moment,
    Uuid,
    Json,
}

impl Kind {
    pub fn sql(self) -> &'static str {
        match self {
            Kind::Int => "integer",
            Kind::Big => "bigint",
            Kind::Text => "text",
            Kind::Numeric => "numeric(12,2)",
            Kind::Double => "double precision",
            Kind::Bool => "boolean",
            Kind::Date => "date",
            Kind::Moment => "timestamptz",
            Kind::Uuid => "uuid",
            Kind::Json => "jsonb",
        }
    }

    pub fn is_number(self) -> bool {
        matches!(self, Kind::Int | Kind::Big | Kind::Numeric | Kind::Double)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Where {
    /// Bound to a map by its first column.
    Map(&'static str),
    Everywhere,
}

#[derive(Debug, Clone)]
pub struct Table {
    pub name: &'static str,
    pub columns: Vec<(&'static str, Kind)>,
    /// How many of the first columns are the primary key.
    pub key: usize,
    pub place: Where,
    /// Rows as literals.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    pub fn ddl(&self) -> String {
        let columns: Vec<String> =
            self.columns.iter().map(|(name, kind)| format!("\"{name}\" {}", kind.sql())).collect();
        let key: Vec<String> =
            self.columns[..self.key].iter().map(|(name, _)| format!("\"{name}\"")).collect();
        format!("CREATE TABLE {} ({}, PRIMARY KEY ({}))", self.name, columns.join(", "), key.join(", "))
    }

    /// INSERT of the rows that this filter lets pass; empty if there are none.
    pub fn insert(&self, pass: impl Fn(&[String]) -> bool) -> String {
        let mut sql = String::new();
        for row in self.rows.iter().filter(|row| pass(row)) {
            let lead =
                if sql.is_empty() { format!("INSERT INTO {} VALUES ", self.name) } else { ", ".to_owned() };
            write!(sql, "{lead}({})", row.join(", ")).expect("writing to a string");
        }
        sql
    }
}

pub struct World {
    pub tables: Vec<Table>,
}

const TEXTS: &[&str] = &[
    "",
    "a",
    "A",
    "b",
    "ab",
    "Zürich",
    "zurich",
    "日本",
    "naïve",
    "it''s",
    "100%",
    "x_y",
    "новый",
    "😀",
    " lead",
    "NULL",
];

/// A value of a kind, as a literal.
pub fn literal(dice: &mut Dice, kind: Kind) -> String {
    match kind {
        Kind::Int => match dice.below(12) {
            0 => "2147483647".to_owned(),
            1 => "(-2147483647)".to_owned(),
            _ => format!("{}", dice.below(12) as i64 - 2).replace("-2", "(-2)").replace("-1", "(-1)"),
        },
        Kind::Big => match dice.below(14) {
            0 => "4000000000000000000".to_owned(),
            1 => "(-4000000000000000000)".to_owned(),
            _ => format!("{}", dice.below(9)),
        },
        Kind::Text => format!("'{}'", dice.pick(TEXTS)),
        Kind::Numeric => format!("{}.{:02}", dice.below(40), dice.below(4) * 25),
        Kind::Double => match dice.below(14) {
            0 => "'NaN'::double precision".to_owned(),
            1 => "'Infinity'::double precision".to_owned(),
            2 => "(-0.0)::double precision".to_owned(),
            _ => format!("{}.{}::double precision", dice.below(30), ["0", "25", "5", "75"][dice.below(4)]),
        },
        Kind::Bool => ["true", "false"][dice.below(2)].to_owned(),
        Kind::Date => match dice.below(10) {
            0 => "'infinity'::date".to_owned(),
            _ => format!("'2024-{:02}-{:02}'::date", 1 + dice.below(3), 1 + dice.below(5)),
        },
        Kind::Moment => {
            format!(
                "'2024-0{}-0{} {:02}:30:00+00'::timestamptz",
                1 + dice.below(2),
                1 + dice.below(4),
                dice.below(24)
            )
        }
        Kind::Uuid => format!("'00000000-0000-0000-0000-00000000000{}'::uuid", dice.below(8)),
        Kind::Json => [
            "'{}'::jsonb",
            "'{\"a\": 1}'::jsonb",
            "'{\"a\": 2, \"b\": [1, 2]}'::jsonb",
            "'[1, \"x\", null]'::jsonb",
            "'null'::jsonb",
        ][dice.below(5)]
        .to_owned(),
    }
}

impl World {
    pub fn new(seed: u64) -> World {
        let mut dice = Dice::new(seed);
        let dice = &mut dice;
        let key = [Kind::Big, Kind::Int, Kind::Text, Kind::Uuid][(seed % 4) as usize];
        let other = [Kind::Text, Kind::Big, Kind::Int][(seed % 3) as usize];
        let mut orders =
            vec![("tenant_id", key), ("id", Kind::Int), ("customer", Kind::Int), ("status", Kind::Text)];
        let rest = [
            ("amount", Kind::Numeric),
            ("weight", Kind::Double),
            ("paid", Kind::Bool),
            ("placed", Kind::Date),
            ("at", Kind::Moment),
            ("ref", Kind::Uuid),
            ("info", Kind::Json),
            ("total", Kind::Big),
        ];
        orders.extend(rest.into_iter().filter(|_| dice.percent(75)));
        let items = vec![
            ("tenant_id", key),
            ("order_id", Kind::Int),
            ("line", Kind::Int),
            ("sku", Kind::Text),
            ("qty", Kind::Int),
            ("price", Kind::Numeric),
        ];
        let events = vec![
            ("device", other),
            ("seq", Kind::Int),
            ("status", Kind::Text),
            ("value", Kind::Double),
            ("at", Kind::Moment),
            ("Mixed", Kind::Int),
        ];
        let countries = vec![
            ("code", Kind::Text),
            ("name", Kind::Text),
            ("region", Kind::Int),
            ("population", Kind::Big),
        ];
        let tables = vec![
            table(dice, "orders", orders, 2, Where::Map("tenants"), 60),
            table(dice, "items", items, 3, Where::Map("tenants"), 80),
            table(dice, "events", events, 2, Where::Map("devices"), 45),
            table(dice, "countries", countries, 1, Where::Everywhere, 9),
        ];
        World { tables }
    }

    /// The same without the numbers that SQLite does not keep.
    #[allow(dead_code, reason = "one of the test programs has no SQLite shards")]
    pub fn without_odd_numbers(mut self) -> World {
        let values = self.tables.iter_mut().flat_map(|table| &mut table.rows).flatten();
        for value in values.filter(|value| value.contains("NaN") || value.contains("-0.0")) {
            *value = "1.5::double precision".to_owned();
        }
        self
    }
}

fn table(
    dice: &mut Dice,
    name: &'static str,
    columns: Vec<(&'static str, Kind)>,
    key: usize,
    place: Where,
    count: usize,
) -> Table {
    let mut rows: Vec<Vec<String>> = Vec::new();
    for _ in 0..count {
        let row: Vec<String> = columns
            .iter()
            .enumerate()
            .map(
                |(at, (_, kind))| {
                    if at >= key && dice.percent(15) { "NULL".to_owned() } else { literal(dice, *kind) }
                },
            )
            .collect();
        if !rows.iter().any(|known| known[..key] == row[..key]) {
            rows.push(row);
        }
    }
    Table { name, columns, key, place, rows }
}
