//! PostgreSQL's SQL on SQLite shards: the proven subset, its functions and its system catalog.

mod across;
mod ddl;
mod deferred;
mod describe;
mod error;
mod fail;
mod functions;
mod held;
mod known_settings;
mod prepared;
mod rules;
mod settings;
mod system;
mod translate;
mod types;
mod value;

pub use across::{Across, Attached, QUIET};
pub use ddl::ddl;
pub use deferred::{REFERENCES_QUERY, Writes};
pub use describe::{BOOKKEEPING, DESCRIPTION_QUERIES, schema_from};
pub use error::error;
pub use functions::{aggregates, collations, functions};
pub use held::{HELD_ROWS_MAX, Held, Steps, WITH_ROWS_MAX};
pub use known_settings::{FIXED_SETTINGS, IGNORED_SETTINGS, all_settings, spelled};
pub use prepared::{
    Format, Moment, OutColumn, Prepared, Tag, encode, parameter_literal, prepare, prepare_across,
};
pub use settings::{Settings, Zone};
pub use system::SIZE_FUNCTIONS;
pub use translate::{NEXT_ID, file_name};
pub use types::array_of;
