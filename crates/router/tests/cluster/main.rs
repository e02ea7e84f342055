//! Catalog, shards and router together on real databases: what operators and requests see, also when things break.

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

/// Makes a test on PostgreSQL of every scenario that needs a server to break, or several processes.
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

mod away;
mod cluster;
mod crashes;
mod fanout;
mod fence;
mod known;
mod outages;
mod place;
mod races;
mod repairs;
mod routing;
mod shards;
mod writers;
mod zombies;
