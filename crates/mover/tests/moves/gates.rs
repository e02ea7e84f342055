//! Processes whose moves wait before named places until a test lets them go.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use polyshard_catalog::Failpoint;

use crate::cluster::{Cluster, Setup};
use crate::place::Place;
use crate::world::World;

/// Closed while it is true.
pub type Gate = Arc<AtomicBool>;

/// A gate for each of these places, which a move waits before until it is opened.
pub fn gates<const COUNT: usize>(places: [&'static str; COUNT]) -> (Failpoint, [Gate; COUNT]) {
    let closed = places.map(|_| Arc::new(AtomicBool::new(true)));
    // A test that fails drops its gates, and so opens them: nothing waits behind one for ever.
    let gates = closed.each_ref().map(Arc::downgrade);
    let failpoint: Failpoint = Arc::new(move |here| {
        if let Some(gate) = places.iter().position(|place| *place == here) {
            tokio::task::block_in_place(|| {
                while gates[gate].upgrade().is_some_and(|gate| gate.load(Ordering::SeqCst)) {
                    std::thread::sleep(Duration::from_millis(2));
                }
            });
        }
        false
    });
    (failpoint, closed)
}

/// A process with both maps, whose moves wait before these places.
pub async fn held_at<const COUNT: usize>(
    place: &Arc<Place>,
    places: [&'static str; COUNT],
) -> (Cluster, [Gate; COUNT]) {
    let (failpoint, gates) = gates(places);
    let setup = Setup { failpoint: Some(failpoint), ..Setup::default() };
    (Cluster::with_maps(place, setup).await, gates)
}

/// Likewise, with two rows of each of some tenants.
pub async fn filled<const COUNT: usize>(
    place: &Arc<Place>,
    tenants: i64,
    places: [&'static str; COUNT],
) -> (Cluster, Arc<World>, [Gate; COUNT]) {
    let (cluster, gates) = held_at(place, places).await;
    let world = Arc::new(World::default());
    world.fill(&cluster, tenants, 2).await;
    (cluster, world, gates)
}
