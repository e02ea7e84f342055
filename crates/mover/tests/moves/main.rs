//! Moves on real databases: rows change their shard while others write them, and nothing is lost, doubled or misplaced.

#![recursion_limit = "256"]

/// Makes a test on each engine, and between them, of every scenario, which is given an empty place.
macro_rules! on_every_engine {
    ($($name:ident),* $(,)?) => {
        on_both_engines!($($name),*);
        mod mixed {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$name($crate::place::Place::mixed()).await;
            })*
        }
    };
}

/// Makes a test on each engine of every scenario.
macro_rules! on_both_engines {
    ($($name:ident),* $(,)?) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$name($crate::place::Place::files()).await;
            })*
        }
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$name($crate::place::Place::server()).await;
            })*
        }
    };
}

mod cluster;
mod crashes;
mod dates;
mod first;
mod gates;
mod guards;
mod key_types;
mod losing;
mod lost;
mod many;
mod neighbours;
mod paced;
mod place;
mod random;
mod repairs;
mod rules;
mod steering;
mod strays;
mod world;
