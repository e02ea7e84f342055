//! The store of tables over real shards of both engines.

/// Declares each test once for each engine.
macro_rules! on_both_engines {
    ($($name:ident)*) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$name($crate::place::Place::sqlite()).await;
            })*
        }
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$name($crate::place::Place::postgres()).await;
            })*
        }
    };
}

mod cluster;
mod entities;
mod place;
mod protocol;
mod queries;
mod tables;
mod tools;
