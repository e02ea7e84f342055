//! The journal on real catalogs and shards of both engines: what is decided is everywhere, whatever breaks.

#![recursion_limit = "256"]

/// Makes a test for each engine of every scenario, which is given an empty place.
macro_rules! on_both_engines {
    ($($name:ident),* $(,)?) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$name($crate::place::Place::files()).await;
            })*
        }
        on_postgres!($($name),*);
    };
}

/// Makes a test on PostgreSQL of every scenario that needs PostgreSQL's SQL, or several processes.
macro_rules! on_postgres {
    ($($name:ident),* $(,)?) => {
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$name($crate::place::Place::server()).await;
            })*
        }
    };
}

mod bound;
mod changes;
mod cluster;
mod crashes;
mod declared;
mod ids;
mod mend;
mod place;
mod reference;
mod schema;
