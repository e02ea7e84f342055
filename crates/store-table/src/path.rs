//! The resources that a table service's URLs name.

use polyshard_azure_storage::ServiceError;

use crate::reply;

/// What a path names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Resource {
    /// The account itself.
    Account,
    /// `/$batch`.
    Batch,
    /// `/Tables`.
    Tables,
    /// `/Tables('name')`.
    TableNamed(String),
    /// `/name` or `/name()`.
    Table(String),
    /// `/name(PartitionKey='…',RowKey='…')`.
    Entity { table: String, partition: String, row: String },
}

/// Reads the decoded parts of a path.
pub(crate) fn parse_resource(path: &[String]) -> Result<Resource, ServiceError> {
    let segment = match path {
        [] => return Ok(Resource::Account),
        [one] if one.is_empty() => return Ok(Resource::Account),
        [one] => one,
        _ => return Err(ServiceError::invalid_uri("a table's URL has one part after the account")),
    };
    if segment == "$batch" {
        return Ok(Resource::Batch);
    }
    let Some((name, rest)) = segment.split_once('(') else {
        return Ok(match segment.as_str() {
            "Tables" => Resource::Tables,
            _ => Resource::Table(segment.clone()),
        });
    };
    let wrong =
        || reply::invalid_input("the URL's parentheses hold (PartitionKey='…',RowKey='…') or ('table')");
    let inner = rest.strip_suffix(')').ok_or_else(wrong)?;
    match name {
        "Tables" if inner.is_empty() => Ok(Resource::Tables),
        "Tables" => match quoted(inner) {
            Some((table, "")) => Ok(Resource::TableNamed(table)),
            _ => Err(wrong()),
        },
        _ if inner.is_empty() => Ok(Resource::Table(name.to_owned())),
        _ => {
            let (partition, row) = keys(inner).ok_or_else(wrong)?;
            Ok(Resource::Entity { table: name.to_owned(), partition, row })
        }
    }
}

/// Both keys, in either order.
fn keys(inner: &str) -> Option<(String, String)> {
    let (first_name, rest) = inner.split_once('=')?;
    let (first, rest) = quoted(rest)?;
    let (second_name, rest) = rest.trim_start().strip_prefix(',')?.split_once('=')?;
    let (second, rest) = quoted(rest)?;
    if !rest.is_empty() {
        return None;
    }
    match (first_name.trim(), second_name.trim()) {
        ("PartitionKey", "RowKey") => Some((first, second)),
        ("RowKey", "PartitionKey") => Some((second, first)),
        _ => None,
    }
}

/// A quoted text at the start, with doubled quotes for single ones, and what follows it.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut rest = text.trim_start().strip_prefix('\'')?;
    let mut out = String::new();
    loop {
        let (part, after) = rest.split_once('\'')?;
        out.push_str(part);
        match after.strip_prefix('\'') {
            Some(after) => {
                out.push('\'');
                rest = after;
            }
            None => return Some((out, after)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(segment: &str) -> Result<Resource, ServiceError> {
        parse_resource(&[segment.to_owned()])
    }

    fn entity(table: &str, partition: &str, row: &str) -> Resource {
        Resource::Entity { table: table.into(), partition: partition.into(), row: row.into() }
    }

    #[test]
    fn paths_name_resources() {
        assert_eq!(parse_resource(&[]).unwrap(), Resource::Account);
        assert_eq!(parse("$batch").unwrap(), Resource::Batch);
        assert_eq!(parse("Tables").unwrap(), Resource::Tables);
        assert_eq!(parse("Tables()").unwrap(), Resource::Tables);
        assert_eq!(parse("Tables('a''b')").unwrap(), Resource::TableNamed("a'b".into()));
        assert_eq!(parse("orders").unwrap(), Resource::Table("orders".into()));
        assert_eq!(parse("orders()").unwrap(), Resource::Table("orders".into()));
        let expected = entity("orders", "o'b,RowKey='", "");
        assert_eq!(parse("orders(PartitionKey='o''b,RowKey=''',RowKey='')").unwrap(), expected);
        assert_eq!(parse("orders(RowKey='r)', PartitionKey='(p')").unwrap(), entity("orders", "(p", "r)"));
        for bad in
            ["t(", "t(x)", "t('a')", "t(PartitionKey='a')", "Tables(a)", "t(PartitionKey='a',RowKey='b'x)"]
        {
            assert_eq!(parse(bad).unwrap_err().status(), 400, "{bad}");
        }
        assert!(parse_resource(&["a".into(), "b".into()]).is_err());
    }

    proptest! {
        #[test]
        fn any_key_is_read_as_it_was_written(partition in "\\PC{0,10}", row in "\\PC{0,10}") {
            let (p, r) = (partition.replace('\'', "''"), row.replace('\'', "''"));
            let parsed = parse(&format!("tab(PartitionKey='{p}',RowKey='{r}')")).unwrap();
            prop_assert_eq!(parsed, entity("tab", &partition, &row));
        }

        #[test]
        fn garbage_never_panics(text in "[a-zA-Z()',= ]{0,40}") {
            let _any = parse(&text);
        }
    }
}
