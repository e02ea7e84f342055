//! PostgreSQL's own `hash*extended` functions, bit for bit, so that every engine computes the same bucket in SQL.
//!
//! The byte hash is Bob Jenkins' lookup3 as PostgreSQL seeds it: the low word of the result is `c`, the high word `b`.
//! Equality with a real server is proven by `tests/postgres_hash.rs`.

use serde::{Deserialize, Serialize};

use crate::error::DefinitionError;
use crate::key::Key;
use crate::key_type::KeyType;

/// The one hash function maps know, by the name it has in stored maps.
pub const HASH_FUNCTION: &str = "postgres_hash_extended";
/// Most buckets of a hash map: enough for tens of thousands of shards, small enough to list.
pub const BUCKETS_MAX: u32 = 65_536;
/// Buckets unless another number is asked for: a hundred shards with ten each, and room to even out.
pub const BUCKETS_DEFAULT: u32 = 1024;

/// What PostgreSQL starts from: the golden ratio, and its own constant.
const START: u32 = 0x9e37_79b9_u32.wrapping_add(3_923_095);

/// How keys become buckets; pinned for the life of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Stored", into = "Stored")]
pub struct HashSpec {
    seed: i64,
    buckets: u32,
}

impl HashSpec {
    /// A hash with this seed into 1 to 65536 buckets.
    pub fn new(seed: i64, buckets: u32) -> Result<HashSpec, DefinitionError> {
        if (1..=BUCKETS_MAX).contains(&buckets) {
            Ok(HashSpec { seed, buckets })
        } else {
            Err(DefinitionError::Buckets { buckets })
        }
    }

    /// Seed 0 and 1024 buckets.
    pub const fn standard() -> HashSpec {
        HashSpec { seed: 0, buckets: BUCKETS_DEFAULT }
    }

    /// The seed of the hash.
    pub fn seed(&self) -> i64 {
        self.seed
    }

    /// How many buckets there are.
    pub fn buckets(&self) -> u32 {
        self.buckets
    }

    /// The bucket of a key. The sign is cut off rather than negated, since the least integer has no opposite.
    pub fn bucket(&self, key: &Key) -> u32 {
        self.bucket_of_hash(hash_extended(key, self.seed))
    }

    /// The bucket of several components, hashed as PostgreSQL hashes a row of them.
    pub(crate) fn bucket_of_components(&self, keys: &[Key]) -> u32 {
        self.bucket_of_hash(hash_row(keys, self.seed))
    }

    fn bucket_of_hash(&self, hash: i64) -> u32 {
        let bucket = (hash & i64::MAX) as u64 % u64::from(self.buckets);
        u32::try_from(bucket).expect("a remainder of a u32 is one")
    }

    /// A PostgreSQL expression that computes the bucket of the given columns, which must not be NULL.
    ///
    /// Each column is an SQL expression, quoted by the caller, with its part of the key type. Functions that cannot
    /// be called from SQL (bytea) or that differ by column type (timestamp with and without zone) are reached through
    /// the hash of a row of one, which is the hash of that one.
    pub fn sql_bucket_expression(&self, columns: &[(&str, KeyType)]) -> String {
        let HashSpec { seed, buckets } = self;
        let hash = match columns {
            [(column, KeyType::Int)] => format!("hashint4extended(({column})::int, {seed})"),
            [(column, KeyType::BigInt)] => format!("hashint8extended(({column})::bigint, {seed})"),
            [(column, KeyType::Uuid)] => format!("uuid_hash_extended(({column})::uuid, {seed})"),
            [(column, KeyType::Text)] => format!("hashtextextended(({column})::text COLLATE \"C\", {seed})"),
            _ => {
                let fields: Vec<String> =
                    columns.iter().map(|(column, kind)| row_field(column, kind)).collect();
                format!("hash_record_extended(ROW({}), {seed})", fields.join(", "))
            }
        };
        format!("(({hash} & 9223372036854775807) % {buckets})::int")
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    function: String,
    seed: i64,
    buckets: u32,
}

impl TryFrom<Stored> for HashSpec {
    type Error = DefinitionError;
    fn try_from(stored: Stored) -> Result<HashSpec, DefinitionError> {
        if stored.function != HASH_FUNCTION {
            return Err(DefinitionError::HashFunction {
                function: stored.function.chars().take(80).collect(),
            });
        }
        HashSpec::new(stored.seed, stored.buckets)
    }
}

impl From<HashSpec> for Stored {
    fn from(spec: HashSpec) -> Stored {
        Stored { function: HASH_FUNCTION.to_owned(), seed: spec.seed, buckets: spec.buckets }
    }
}

/// The 64-bit hash of a key, as PostgreSQL 15 computes it for the type's hash operator class.
pub fn hash_extended(key: &Key, seed: i64) -> i64 {
    let wide = seed as u64;
    let hash = match key {
        Key::Int(n) | Key::Date(n) => hash_word(*n as u32, wide),
        Key::BigInt(n) | Key::Timestamp(n) => hash_i64(*n, wide),
        Key::Uuid(uuid) => hash_bytes(uuid.as_bytes(), wide),
        Key::Binary(bytes) => hash_bytes(bytes, wide),
        Key::Text(text) => hash_bytes(text.as_bytes(), wide),
        Key::Tuple(keys) => return hash_row(keys, seed),
    };
    hash as i64
}

/// `hash_record_extended`: each column's hash, combined by multiplying with 31.
fn hash_row(keys: &[Key], seed: i64) -> i64 {
    keys.iter().fold(0_i64, |row, key| row.wrapping_mul(31).wrapping_add(hash_extended(key, seed)))
}

/// `hashint8extended`: folds the high half in so that small numbers hash as their 32-bit equals.
fn hash_i64(n: i64, seed: u64) -> u64 {
    let (low, high) = (n as u32, (n >> 32) as u32);
    hash_word(low ^ if n >= 0 { high } else { !high }, seed)
}

/// `hash_bytes_uint32_extended`.
fn hash_word(word: u32, seed: u64) -> u64 {
    let mut state = Lookup3::new(4, seed);
    state.a = state.a.wrapping_add(word);
    state.finish()
}

/// `hash_bytes_extended`.
fn hash_bytes(bytes: &[u8], seed: u64) -> u64 {
    // PostgreSQL's lengths are 32-bit, and keys are far shorter.
    let mut state = Lookup3::new(bytes.len() as u32, seed);
    let mut blocks = bytes.chunks_exact(12);
    for block in &mut blocks {
        state.add(word(block, 0), word(block, 4), word(block, 8));
        state.mix();
    }
    let rest = blocks.remainder();
    // The lowest byte of `c` is reserved for the length, so the last three bytes sit one higher.
    state.add(word(rest, 0), word(rest, 4), word(rest, 8) << 8);
    state.finish()
}

/// Four bytes from `at`, little-endian; those beyond the end count as zero.
fn word(bytes: &[u8], at: usize) -> u32 {
    let mut four = [0; 4];
    let found = bytes.get(at..).unwrap_or_default();
    let count = found.len().min(4);
    four[..count].copy_from_slice(&found[..count]);
    u32::from_le_bytes(four)
}

struct Lookup3 {
    a: u32,
    b: u32,
    c: u32,
}

impl Lookup3 {
    fn new(length: u32, seed: u64) -> Lookup3 {
        let start = START.wrapping_add(length);
        let mut state = Lookup3 { a: start, b: start, c: start };
        if seed != 0 {
            state.add((seed >> 32) as u32, seed as u32, 0);
            state.mix();
        }
        state
    }

    fn add(&mut self, a: u32, b: u32, c: u32) {
        self.a = self.a.wrapping_add(a);
        self.b = self.b.wrapping_add(b);
        self.c = self.c.wrapping_add(c);
    }

    fn mix(&mut self) {
        let Lookup3 { mut a, mut b, mut c } = *self;
        for (first, second, third) in [(4, 6, 8), (16, 19, 4)] {
            a = a.wrapping_sub(c) ^ c.rotate_left(first);
            c = c.wrapping_add(b);
            b = b.wrapping_sub(a) ^ a.rotate_left(second);
            a = a.wrapping_add(c);
            c = c.wrapping_sub(b) ^ b.rotate_left(third);
            b = b.wrapping_add(a);
        }
        *self = Lookup3 { a, b, c };
    }

    fn finish(self) -> u64 {
        let Lookup3 { mut a, mut b, mut c } = self;
        c = (c ^ b).wrapping_sub(b.rotate_left(14));
        a = (a ^ c).wrapping_sub(c.rotate_left(11));
        b = (b ^ a).wrapping_sub(a.rotate_left(25));
        c = (c ^ b).wrapping_sub(b.rotate_left(16));
        a = (a ^ c).wrapping_sub(c.rotate_left(4));
        b = (b ^ a).wrapping_sub(a.rotate_left(14));
        c = (c ^ b).wrapping_sub(b.rotate_left(24));
        (u64::from(b) << 32) | u64::from(c)
    }
}

fn row_field(column: &str, key_type: &KeyType) -> String {
    match key_type {
        KeyType::Int => format!("({column})::int"),
        KeyType::BigInt => format!("({column})::bigint"),
        KeyType::Uuid => format!("({column})::uuid"),
        KeyType::Binary => format!("({column})::bytea"),
        KeyType::Text => format!("({column})::text COLLATE \"C\""),
        KeyType::Date => format!("({column})::date"),
        // A cast would go through the session's time zone; both timestamp types hash alike as they are.
        KeyType::Timestamp | KeyType::Tuple(_) => format!("({column})"),
    }
}
