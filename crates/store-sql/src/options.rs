//! The options of the SQL endpoint.

use polyshard_store::{Endpoint, Kind, OptionSpec};

/// Where SQL is spoken.
pub(crate) const ENDPOINTS: &[Endpoint] =
    &[Endpoint { name: "sql", about: "PostgreSQL's protocol", scheme: "postgres", port: 6432 }];

/// Its options.
pub(crate) const OPTIONS: &[OptionSpec] = &[
    OptionSpec::new("sql.user", Kind::Text, "polyshard", "The user of the SQL endpoint."),
    OptionSpec::new(
        "sql.password",
        Kind::Secret,
        "",
        "The user's password. Without one it is `polyshard`, which is accepted on loopback addresses only.",
    ),
    OptionSpec::new(
        "sql.password_env",
        Kind::Variable,
        "",
        "Environment variable that holds the user's password.",
    ),
    OptionSpec::new("sql.password_file", Kind::Path, "", "File that holds the user's password."),
    OptionSpec::new(
        "sql.database",
        Kind::Text,
        "polyshard",
        "The name of the database behind the SQL endpoint.",
    ),
    OptionSpec::new(
        "sql.certificate_file",
        Kind::Path,
        "",
        "Certificate of the SQL endpoint in PEM, followed by its issuers'. With it, clients may ask for encryption.",
    ),
    OptionSpec::new("sql.certificate_key_file", Kind::Path, "", "Private key of that certificate in PEM."),
    OptionSpec::new(
        "sql.require_tls",
        Kind::Bool,
        "false",
        "Whether clients of the SQL endpoint that do not ask for encryption are sent away.",
    ),
    OptionSpec::new(
        "sql.idle_in_transaction_ms_max",
        Kind::Integer { min: 1, max: 3_600_000 },
        "60000",
        "How long a transaction may wait for its client's next statement.",
    ),
    OptionSpec::new(
        "sql.sessions_max",
        Kind::Integer { min: 1, max: 1_000_000 },
        "20",
        "Sessions to each PostgreSQL shard that clients of the SQL endpoint share.",
    ),
    OptionSpec::new(
        "sql.undeclared",
        Kind::Choice(&["reference", "refuse", "local"]),
        "reference",
        "Tables that nobody has declared: kept on every shard, refused until declared, or kept on the first shard.",
    ),
];
