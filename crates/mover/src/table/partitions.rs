//! Tables whose key begins with the placement, with a list of partitions beside them, are searched by keys without it.

use polyshard_shard::{Column, Dataset, Placement};

/// What the name of such a list ends with, after that of its table: the store makes both.
const LIST: &str = "_partition";
/// The column of the table that the list is of.
const PARTITION: &str = "pk";

/// The condition that leads to the place of a partition, for a key that is of another table's columns; empty where the
/// key is found without it. Otherwise SQLite would read the whole range for each row. A partition that is not listed
/// has no row.
pub(super) fn lead(dataset: &Dataset, columns: &[Column], key: &[usize], own_key: &[usize]) -> String {
    let (Placement::Column(placement), Some(number)) = (&dataset.placement, dataset.rows_column()) else {
        return String::new();
    };
    let place = |name: &str| columns.iter().position(|column| column.name.trim_matches('"') == name);
    if !place(placement.trim_matches('"')).is_some_and(|at| own_key.contains(&at) && !key.contains(&at)) {
        return String::new();
    }
    let parameter = |name: &str| {
        let at = key.iter().position(|at| Some(*at) == place(name))?;
        Some(columns[key[at]].parameter(at + 1))
    };
    match (parameter(number.trim_matches('"')), parameter(PARTITION)) {
        (Some(number), Some(name)) => format!(
            " AND {placement} = (SELECT place FROM {}{LIST} WHERE number = {number} AND name = {name})",
            dataset.table
        ),
        _ => String::new(),
    }
}
