//! Ids that are unique over all shards: what makes them in the database.

use polyshard_engine::Dialect;

/// The first moment of time-ordered ids: 2024-01-01 in milliseconds since 1970. 41 bits reach to 2093.
pub const IDS_SINCE_MS: i64 = 1_704_067_200_000;

/// Bits below the time in an id: the shard's number, then a count within the millisecond.
pub const SHARD_BITS: u32 = 10;
/// Ids of one shard in one millisecond before the count runs ahead of the clock.
pub const COUNT_BITS: u32 = 12;

/// The class of the advisory lock under which a time-ordered id is made; "psid" in ASCII.
const ID_LOCK_CLASS: i32 = 0x7073_6964;

/// How long an insert waits for a block of ids that is on its way, in steps of 5 ms: as long as a catalog may be
/// silent before its callers are told.
const BLOCK_WAIT_STEPS: u32 = 1_000;
/// How many of these steps a transaction waits that sees everything as it was when it began: it cannot see a block that
/// is leased meanwhile, but when it begins again the block is there.
const BLOCK_WAIT_STEPS_ISOLATED: u32 = 100;

/// Tables and functions on a shard.
pub(crate) fn statements(dialect: Dialect) -> Vec<String> {
    let (int, text) = (dialect.bigint(), dialect.text());
    let blocks = format!(
        "CREATE TABLE IF NOT EXISTS {} (sequence {text} NOT NULL, local_from {int} NOT NULL, size {int} NOT NULL, \
         start {int} NOT NULL, PRIMARY KEY (sequence, local_from))",
        dialect.own_table("id_block")
    );
    match dialect {
        Dialect::Sqlite => vec![blocks],
        Dialect::Postgres => {
            let clock = format!(
                "CREATE SEQUENCE IF NOT EXISTS polyshard.id_clock MINVALUE 0 MAXVALUE {}",
                (1_i64 << (41 + COUNT_BITS)) - 1
            );
            vec![blocks, clock, next_id(), nextval()]
        }
    }
}

/// `polyshard.next_id()`: milliseconds, shard, count. The sequence holds milliseconds and count together and only
/// grows, also when the clock goes back; since it must be looked at before it is set, it is under a lock, which is held
/// for microseconds and not to the end of the transaction.
fn next_id() -> String {
    format!(
        "CREATE OR REPLACE FUNCTION polyshard.next_id() RETURNS bigint LANGUAGE plpgsql VOLATILE \
         SET search_path = pg_catalog AS $body$
DECLARE
    least bigint;
    moment bigint;
    shard bigint;
BEGIN
    SELECT number INTO shard FROM polyshard.journal_applied;
    IF shard IS NULL THEN
        RAISE EXCEPTION 'this shard has no number yet' USING ERRCODE = '55000',
            HINT = 'It gets one when a Polyshard server first uses it.';
    END IF;
    BEGIN
        PERFORM pg_advisory_lock({ID_LOCK_CLASS}, 1);
        least := ((extract(epoch FROM clock_timestamp()) * 1000)::bigint - {IDS_SINCE_MS}) << {COUNT_BITS};
        SELECT last_value INTO moment FROM polyshard.id_clock;
        IF moment < least THEN
            moment := setval('polyshard.id_clock', least);
        ELSE
            moment := nextval('polyshard.id_clock');
        END IF;
    EXCEPTION WHEN query_canceled OR OTHERS THEN
        PERFORM pg_advisory_unlock({ID_LOCK_CLASS}, 1);
        RAISE;
    END;
    PERFORM pg_advisory_unlock({ID_LOCK_CLASS}, 1);
    RETURN ((moment >> {COUNT_BITS}) << {low}) | (shard << {COUNT_BITS}) | (moment & {mask});
END
$body$",
        low = SHARD_BITS + COUNT_BITS,
        mask = (1_i64 << COUNT_BITS) - 1,
    )
}

/// `polyshard.nextval(sequence)`: what serial and identity columns of sharded tables use. The shard's own sequence
/// counts, and the count is looked up in the blocks that were leased from the catalog.
fn nextval() -> String {
    format!(
        "CREATE OR REPLACE FUNCTION polyshard.nextval(sequence regclass) RETURNS bigint LANGUAGE plpgsql VOLATILE \
         SET search_path = pg_catalog AS $body$
#variable_conflict use_variable
DECLARE
    local bigint := nextval(sequence);
    named text := sequence::text;
    answer bigint;
BEGIN
    FOR step IN 1..{BLOCK_WAIT_STEPS} LOOP
        SELECT block.start + (local - block.local_from) INTO answer FROM polyshard.id_block AS block
            WHERE block.sequence = named AND block.local_from <= local AND local < block.local_from + block.size
            ORDER BY block.local_from DESC LIMIT 1;
        IF answer IS NOT NULL THEN
            RETURN answer;
        END IF;
        IF step = {BLOCK_WAIT_STEPS_ISOLATED}
            AND current_setting('transaction_isolation') IN ('repeatable read', 'serializable')
        THEN
            RAISE EXCEPTION 'more ids for % are there than this transaction can see', named USING ERRCODE = '40001',
                HINT = 'Begin the transaction again; it gets them then.';
        END IF;
        PERFORM pg_sleep(0.005);
    END LOOP;
    RAISE EXCEPTION 'no ids are left for % on this shard', named USING ERRCODE = '55000',
        HINT = 'A Polyshard server leases more from the catalog: see that one runs and the catalog answers.';
END
$body$"
    )
}
