//! What must be true of a table before it is declared. Pure: values in, a refusal or nothing out.

use std::collections::BTreeMap;

use polyshard_map::{KeyType, MapDefinition, MapName};
use polyshard_sql::{
    Collation, Column, ForeignKey, Placement, Schema, SqlError, SqlState, Table, TableName, TypeOid,
};

use crate::introspect::Details;

/// When a table is looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Occasion {
    /// It is declared now, and its rows are spread.
    Declared,
    /// It was declared before, and the schema has changed. A new table that refers to it may be declared next; until
    /// then its rows are refused by its own foreign key.
    Changed,
}

/// A table that is to be sharded, or is.
pub(crate) struct Sharding<'a> {
    pub occasion: Occasion,
    pub schema: &'a Schema,
    pub table: &'a Table,
    pub details: &'a Details,
    pub definition: &'a MapDefinition,
    pub column: usize,
}

impl Sharding<'_> {
    fn map(&self) -> &MapName {
        self.definition.name()
    }

    fn column(&self) -> &Column {
        &self.table.columns[self.column]
    }

    /// Everything that a sharded table, and a later move of its rows, needs.
    pub(crate) fn check(&self) -> Result<(), SqlError> {
        match self.faults().into_iter().next() {
            Some(fault) => Err(fault),
            None => Ok(()),
        }
    }

    /// All that it lacks: whoever has to change it wants to know at once.
    pub(crate) fn faults(&self) -> Vec<SqlError> {
        let (name, column) = (&self.table.name, &self.column().name);
        let mut faults = Vec::new();
        faults.extend(check_family(name, self.details).err());
        if self.table.row_security {
            faults.push(SqlError::unsupported(
                format!("table {name} has row-level security"),
                "sessions on the shards run as the tables' owner, who is exempt from it: check rights in the \
                 application, or ALTER TABLE ... DISABLE ROW LEVEL SECURITY",
            ));
        }
        faults.extend(fits(self.column(), self.definition).err().map(|why| {
            wrong(format!("column {column} of {name} cannot be the key of map {}: {why}", self.map()))
        }));
        if !self.column().not_null {
            let message = format!("the key column {column} of {name} allows NULL, and NULL has no shard");
            let remedy = format!("ALTER TABLE {name} ALTER COLUMN {column} SET NOT NULL");
            faults.push(wrong(message).hint(remedy));
        }
        if self.table.primary_key.is_empty() {
            let message = format!("table {name} has no primary key, by which rows are moved between shards");
            faults.push(wrong(message).hint(format!("ALTER TABLE {name} ADD PRIMARY KEY ({column}, ...)")));
        }
        for (index, columns) in &self.details.unique {
            if !columns.contains(column) {
                faults.push(unique_lacks(name, index, column));
            }
        }
        faults.extend(self.table.foreign_keys.iter().filter_map(|foreign| self.check_foreign(foreign).err()));
        for other in self.schema.tables.values().filter(|other| other.name != *name) {
            let referring = other.foreign_keys.iter().filter(|foreign| foreign.target == *name);
            faults.extend(referring.filter_map(|foreign| self.check_referring(other, foreign).err()));
        }
        faults
    }

    /// A foreign key of this table.
    fn check_foreign(&self, foreign: &ForeignKey) -> Result<(), SqlError> {
        if foreign.target == self.table.name {
            let key = &self.column().name;
            return self.holds_key(&self.table.name, foreign, key);
        }
        let Some(target) = self.schema.tables.get(&foreign.target) else { return Ok(()) };
        match &target.placement {
            Placement::Reference { .. } => Ok(()),
            Placement::Sharded { map, column, .. } if map == self.map() => {
                self.holds_key(&self.table.name, foreign, &target.columns[*column].name)
            }
            Placement::Sharded { map, .. } => Err(wrong(format!(
                "foreign key {} of {} refers to {}, which is sharded by another map, {map}",
                foreign.name, self.table.name, foreign.target
            ))
            .hint("rows that refer to each other must be on one shard: use the same map, or drop the foreign key")),
            Placement::Local(shard) => Err(wrong(format!(
                "foreign key {} of {} refers to {}, which is on shard {shard} alone",
                foreign.name, self.table.name, foreign.target
            ))
            .hint("drop the foreign key")),
        }
    }

    /// The foreign key pairs the key column with the target's, so that both rows are on one shard.
    fn holds_key(&self, name: &TableName, foreign: &ForeignKey, target_key: &str) -> Result<(), SqlError> {
        let mut pairs = foreign.columns.iter().zip(&foreign.target_columns);
        if pairs.any(|(column, target)| *column == self.column && target == target_key) {
            return Ok(());
        }
        Err(crosses(name, foreign, &self.column().name, target_key))
    }

    /// A foreign key of another table that refers to this one.
    fn check_referring(&self, other: &Table, foreign: &ForeignKey) -> Result<(), SqlError> {
        let key = &self.column().name;
        match &other.placement {
            Placement::Sharded { map, column, .. } if map == self.map() => {
                let mut pairs = foreign.columns.iter().zip(&foreign.target_columns);
                if pairs.any(|(at, target)| at == column && target == key) {
                    return Ok(());
                }
                Err(crosses(&other.name, foreign, &other.columns[*column].name, key))
            }
            Placement::Reference { declared: false } if self.occasion == Occasion::Changed => {
                let mut targets = foreign.target_columns.iter();
                if targets.any(|target| target == key) {
                    Ok(())
                } else {
                    Err(crosses(&other.name, foreign, key, key))
                }
            }
            Placement::Reference { declared: false } => Err(wrong(format!(
                "table {} refers to {} by foreign key {}, and is not sharded itself",
                other.name, self.table.name, foreign.name
            ))
            .hint(format!(
                "shard it first, by the same map: SELECT polyshard.shard_table('{}', '{}', '...')",
                other.name,
                self.map()
            ))),
            _ => Err(wrong(format!(
                "table {} refers to {} by foreign key {}, and its rows would not be where those are",
                other.name, self.table.name, foreign.name
            ))
            .hint("drop the foreign key, or shard that table by the same map")),
        }
    }
}

/// A table whose rows are all on one shard, or on every shard, may only refer to what is there too.
pub(crate) fn check_whole(
    schema: &Schema,
    table: &Table,
    details: &Details,
    placement: &Placement,
) -> Result<(), SqlError> {
    check_family(&table.name, details)?;
    for foreign in &table.foreign_keys {
        let Some(target) = schema.tables.get(&foreign.target) else { continue };
        let fine = foreign.target == table.name
            || matches!(target.placement, Placement::Reference { .. })
            || target.placement == *placement;
        if !fine {
            return Err(wrong(format!(
                "foreign key {} of {} refers to {}, whose rows are not all there",
                foreign.name, table.name, foreign.target
            ))
            .hint("drop the foreign key"));
        }
    }
    if let Placement::Local(shard) = placement {
        for other in schema.tables.values().filter(|other| other.name != table.name) {
            let refers = other.foreign_keys.iter().find(|foreign| foreign.target == table.name);
            if let Some(foreign) = refers
                && other.placement != *placement
            {
                return Err(wrong(format!(
                    "table {} refers to {} by foreign key {}, and is not on shard {shard} alone",
                    other.name, table.name, foreign.name
                ))
                .hint("make that table local first, or drop the foreign key"));
            }
        }
    }
    Ok(())
}

fn check_family(name: &TableName, details: &Details) -> Result<(), SqlError> {
    if details.family {
        return Err(SqlError::unsupported(
            format!("table {name} is partitioned, a partition, or inherits"),
            "the map does what partitions by tenant do; use an ordinary table",
        ));
    }
    Ok(())
}

/// Whether a column can hold the keys of a map, in the sense that equality in the database is equality of keys.
pub(crate) fn fits(column: &Column, definition: &MapDefinition) -> Result<(), String> {
    if definition.scheme().prefix().is_some() {
        return Err("the map has segments, and one column does not choose among them".to_owned());
    }
    let types: &[TypeOid] = match definition.key_type() {
        KeyType::Int => &[TypeOid::INT4, TypeOid::INT2],
        KeyType::BigInt => &[TypeOid::INT8, TypeOid::INT4, TypeOid::INT2],
        KeyType::Uuid => &[TypeOid::UUID],
        KeyType::Binary => &[TypeOid::BYTEA],
        KeyType::Text => &[TypeOid::TEXT, TypeOid::VARCHAR],
        KeyType::Timestamp => &[TypeOid::TIMESTAMPTZ, TypeOid::TIMESTAMP],
        KeyType::Date => &[TypeOid::DATE],
        KeyType::Tuple(_) => return Err("the map's keys have several parts, and a column has one".to_owned()),
    };
    if !types.contains(&column.type_oid) {
        return Err(format!("it is {} and the map's keys are {}", column.type_name, definition.key_type()));
    }
    if column.collation == Collation::Nondeterministic {
        return Err("under its collation different texts can be equal; use a deterministic one".to_owned());
    }
    Ok(())
}

pub(crate) fn unique_lacks(table: &TableName, index: &str, column: &str) -> SqlError {
    wrong(format!("unique index {index} of {table} does not contain the key column {column}")).hint(format!(
        "each shard could only see to its own rows: put {column} into the index, as in PRIMARY KEY ({column}, ...), \
         or make it an ordinary index"
    ))
}

fn crosses(table: &TableName, foreign: &ForeignKey, key: &str, target_key: &str) -> SqlError {
    wrong(format!("foreign key {} of {table} could refer to a row on another shard", foreign.name)).hint(format!(
        "both rows are on one shard if the foreign key contains the keys: FOREIGN KEY ({key}, ...) REFERENCES {} \
         ({target_key}, ...)",
        foreign.target
    ))
}

pub(crate) fn wrong(message: String) -> SqlError {
    SqlError::new(SqlState::INVALID_TABLE_DEFINITION, message)
}

/// The table of a name, or a refusal that says what is there instead.
pub(crate) fn find<'a>(
    schema: &'a Schema,
    details: &'a BTreeMap<TableName, Details>,
    name: &TableName,
) -> Result<(&'a Table, &'a Details), SqlError> {
    if schema.views.contains_key(name) {
        let message = format!("{name} is a view: its rows are where those of its tables are");
        return Err(SqlError::new(SqlState("42809"), message).hint("declare the tables that it reads"));
    }
    match (schema.tables.get(name), details.get(name)) {
        (Some(table), Some(details)) => Ok((table, details)),
        _ => Err(SqlError::new(SqlState::UNDEFINED_TABLE, format!("table {name} does not exist"))
            .hint("create it first, through Polyshard, so that every shard has it")),
    }
}
