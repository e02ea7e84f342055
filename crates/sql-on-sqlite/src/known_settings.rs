//! The settings that clients of PostgreSQL know, and what they are where nobody has set them.

/// Settings that can be set to anything and change nothing here, and their values in the beginning.
pub const IGNORED_SETTINGS: [(&str, &str); 26] = [
    ("application_name", ""),
    ("backslash_quote", "safe_encoding"),
    ("check_function_bodies", "on"),
    ("client_min_messages", "notice"),
    ("default_table_access_method", "heap"),
    ("default_tablespace", ""),
    ("default_transaction_deferrable", "off"),
    ("default_transaction_isolation", "read committed"),
    ("default_transaction_read_only", "off"),
    ("extra_float_digits", "1"),
    ("geqo", "on"),
    ("idle_in_transaction_session_timeout", "0"),
    ("jit", "off"),
    ("lock_timeout", "0"),
    ("log_statement", "none"),
    ("max_identifier_length", "63"),
    ("row_security", "on"),
    ("server_version_num", "150000"),
    ("statement_timeout", "0"),
    ("synchronous_commit", "on"),
    ("tcp_keepalives_idle", "0"),
    ("transaction_isolation", "read committed"),
    ("transaction_read_only", "off"),
    ("work_mem", "4MB"),
    ("xmloption", "content"),
    ("session characteristics", ""),
];

/// Settings that can be one thing only.
pub const FIXED_SETTINGS: [(&str, &str); 6] = [
    ("datestyle", "ISO, MDY"),
    ("intervalstyle", "postgres"),
    ("password_encryption", "scram-sha-256"),
    ("standard_conforming_strings", "on"),
    ("server_encoding", "UTF8"),
    ("server_version", "15.0 (Polyshard)"),
];

/// How PostgreSQL spells those that are not all in small letters.
const SPELLED: [(&str, &str); 3] =
    [("datestyle", "DateStyle"), ("intervalstyle", "IntervalStyle"), ("timezone", "TimeZone")];

/// A setting's name as it is shown.
pub fn spelled(name: &str) -> &str {
    SPELLED.iter().find(|(known, _)| *known == name).map_or(name, |(_, spelled)| spelled)
}

/// All that can be shown, by name, as a session has them: what it has set, and the rest as it is in the beginning.
pub fn all_settings(settings: &crate::Settings, search_path: &[String]) -> Vec<(String, String)> {
    let path = search_path.iter().map(|name| crate::functions::quote_ident(name)).collect::<Vec<_>>();
    let bytes = if settings.bytea_escape { "escape" } else { "hex" };
    let mut all = vec![
        ("bytea_output".to_owned(), bytes.to_owned()),
        ("client_encoding".to_owned(), "UTF8".to_owned()),
        ("search_path".to_owned(), path.join(", ")),
        ("timezone".to_owned(), settings.zone.name().to_owned()),
    ];
    let set = settings.named.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let rest = IGNORED_SETTINGS.iter().chain(&FIXED_SETTINGS).copied();
    for (name, value) in set.chain(rest) {
        // Some are words of SET, and no settings.
        if !name.contains(' ') && !all.iter().any(|(known, _)| known == name) {
            all.push((name.to_owned(), value.to_owned()));
        }
    }
    for (name, _) in &mut all {
        *name = spelled(name).to_owned();
    }
    all.sort_by_key(|(name, _)| name.to_ascii_lowercase());
    all
}
