//! Clients: enter by a router, execute on a session of it, leave; with a pause possible between any two steps.

use std::sync::Arc;

use polyshard_engine::Guard;
use polyshard_map::{KeyRange, ShardId, State};
use polyshard_router::gate::{Access, Place};
use polyshard_router::view::View;
use rand::RngExt;

use crate::model::UNITS;
use crate::world::{Hello, World};

/// What a client wants.
#[derive(Debug, Clone, Copy)]
pub struct Request {
    map: usize,
    unit: usize,
    access: Access,
}

/// A counted way to a shard.
#[derive(Clone)]
struct Ticket {
    shard: usize,
    place: Place,
    guard: Guard,
}

/// How far a request is.
enum Phase {
    Idle,
    Located(Arc<View>, usize),
    Guarded(Arc<View>, usize, Guard),
    Entered(Arc<View>, Ticket),
    /// The range is held.
    Waiting(usize),
    Holding(Ticket),
    /// The guard was looked at, with the session at hand.
    Cleared(Ticket, u64),
    /// The statement is on its way, or waits in the database.
    Sent(Ticket, u64),
    /// It was executed; another statement of the same transaction may follow on the same session.
    Executed(Ticket, u64),
}

pub struct Client {
    router: usize,
    request: Request,
    phase: Phase,
    stalled_until: i64,
}

/// A statement whose router has died: the database may still execute it.
pub struct Ghost {
    request: Request,
    shard: usize,
    session: u64,
}

impl Client {
    pub fn new(router: usize) -> Client {
        let request = Request { map: 0, unit: 0, access: Access::Read };
        Client { router, request, phase: Phase::Idle, stalled_until: 0 }
    }

    pub fn is_idle(&self) -> bool {
        matches!(self.phase, Phase::Idle)
    }
}

impl World {
    /// A client does one thing, or the database does it for him.
    pub fn serve(&mut self, index: usize) {
        let phase = std::mem::replace(&mut self.clients[index].phase, Phase::Idle);
        let next = match phase {
            // The database does not wait for a router that is paused.
            Phase::Sent(ticket, session) => self.arrive(index, ticket, session),
            phase if self.now_ms < self.routers[self.clients[index].router].paused_until => phase,
            phase if self.now_ms < self.clients[index].stalled_until => phase,
            phase => self.go_on(index, phase),
        };
        self.clients[index].phase = next;
        if self.mishap(0.01) {
            self.clients[index].stalled_until = self.now_ms + self.rng.random_range(0..2_000);
        }
    }

    fn go_on(&mut self, index: usize, phase: Phase) -> Phase {
        let (router, request) = (self.clients[index].router, self.clients[index].request);
        match phase {
            Phase::Idle if self.faulty => {
                let request = Request {
                    map: self.rng.random_range(0..self.spaces.len()),
                    unit: self.rng.random_range(0..UNITS),
                    access: if self.chance(0.6) { Access::Write } else { Access::Read },
                };
                self.clients[index].request = request;
                self.locate(router, request)
            }
            Phase::Idle => Phase::Idle,
            Phase::Located(_, shard) if !self.teach(router, shard) => Phase::Idle,
            Phase::Located(view, shard) => {
                let guard = self.routers[router].state.shard(&self.shards[shard].id).generation.guard();
                Phase::Guarded(view, shard, guard)
            }
            Phase::Guarded(view, shard, guard) => {
                let ranges: Arc<[KeyRange]> = vec![self.point(request)].into();
                let (map, id) = (self.spaces[request.map].name(), &self.shards[shard].id);
                match self.routers[router].state.gate.enter(map, &ranges, id, request.access) {
                    Some(place) => Phase::Entered(view, Ticket { shard, place, guard }),
                    None => Phase::Waiting(shard),
                }
            }
            Phase::Waiting(shard) => {
                let (map, id) = (self.spaces[request.map].name(), &self.shards[shard].id);
                let gate = &self.routers[router].state.gate;
                match gate.is_held(map, &[self.point(request)], id, request.access) {
                    true if self.chance(0.95) => Phase::Waiting(shard),
                    true => Phase::Idle,
                    false => self.locate(router, request),
                }
            }
            Phase::Entered(view, ticket) => {
                let map = self.spaces[request.map].name();
                let same = |view: &View| view.maps.get(map).map(Arc::as_ptr);
                if same(&view) == same(&self.routers[router].state.view()) {
                    return Phase::Holding(ticket);
                }
                self.leave(router, &ticket);
                self.locate(router, request)
            }
            Phase::Holding(ticket) => self.find_session(router, ticket),
            Phase::Cleared(ticket, session) => Phase::Sent(ticket, session),
            Phase::Sent(..) => unreachable!("what is sent is the database's"),
            Phase::Executed(ticket, session) => {
                let next = self.rng.random_range(0..10);
                if next >= 2 {
                    self.commit_rows(ticket.shard, Some(session));
                }
                match next {
                    0..2 => Phase::Sent(ticket, session),
                    2..4 => Phase::Holding(ticket),
                    _ => {
                        self.leave(router, &ticket);
                        Phase::Idle
                    }
                }
            }
        }
    }

    fn locate(&self, router: usize, request: Request) -> Phase {
        let space = &self.spaces[request.map];
        let view = self.routers[router].state.view();
        let located = view.maps.get(space.name()).and_then(|known| {
            let located = known.map.locate_placement(space.bound(request.unit).as_slice())?;
            allows(located.state(), request.access).then(|| located.shard().clone())
        });
        match located {
            Some(shard) => Phase::Located(view, self.shard_index(&shard)),
            None => Phase::Idle,
        }
    }

    fn point(&self, request: Request) -> KeyRange {
        KeyRange::point(self.spaces[request.map].bound(request.unit).clone())
    }

    fn leave(&self, router: usize, ticket: &Ticket) {
        self.routers[router].state.gate.leave(ticket.place);
    }

    /// A session that is introduced, or a new one; the guard is looked at when it is there.
    fn find_session(&mut self, router: usize, ticket: Ticket) -> Phase {
        let shard = &self.shards[ticket.shard];
        let mine = &mut self.routers[router].sessions[ticket.shard];
        // What is broken is noticed when it is used.
        mine.retain(|id| shard.sessions.contains_key(id));
        let ready = mine.iter().find(|id| matches!(shard.sessions[id].hello, Hello::Ready)).copied();
        let opening = mine.len();
        match ready {
            Some(session) if !self.chance(0.05) => match ticket.guard.check() {
                Ok(()) => Phase::Cleared(ticket, session),
                Err(_) => {
                    self.leave(router, &ticket);
                    Phase::Idle
                }
            },
            _ => {
                if opening < 3 {
                    self.open_session(router, ticket.shard);
                }
                Phase::Holding(ticket)
            }
        }
    }

    /// A statement gets to the database, unless its session is gone.
    fn arrive(&mut self, index: usize, ticket: Ticket, session: u64) -> Phase {
        let (router, request) = (self.clients[index].router, self.clients[index].request);
        if !self.shards[ticket.shard].sessions.contains_key(&session) {
            if self.now_ms < self.routers[router].paused_until {
                return Phase::Sent(ticket, session);
            }
            self.leave(router, &ticket);
            return Phase::Idle;
        }
        if !self.execute_statement(request, ticket.shard, session, &format!("client {index} of r{router}")) {
            // Another transaction has the row.
            return Phase::Sent(ticket, session);
        }
        Phase::Executed(ticket, session)
    }

    /// The promise: only the owner executes, and only what the state allows. False if it has to wait for another.
    fn execute_statement(&mut self, request: Request, shard: usize, session: u64, who: &str) -> bool {
        let space = &self.spaces[request.map];
        let local = &self.shards[shard].db.state;
        let owned = local.owned(space.name(), space.bound(request.unit).as_slice());
        let allowed = owned.is_some_and(|entry| allows(entry.state, request.access));
        let Request { unit, access, .. } = request;
        let text = format!("{who} executes {access:?} of {} unit {unit} on s{shard}", space.name());
        let found = format!("{owned:?}");
        self.executed += 1;
        self.note(text.clone());
        assert!(allowed, "{text}, where that is not allowed: the shard's own entry is {found}");
        if !self.moving || access == Access::Read {
            return true;
        }
        self.write_row(shard, Some(session), request.map, unit)
    }

    /// A statement of a dead router gets to the database.
    pub fn haunt(&mut self, index: usize) {
        let Ghost { request, shard, session } = self.ghosts.swap_remove(index);
        if self.shards[shard].sessions.contains_key(&session) {
            // Whoever waits for another's row is gone when the session is.
            self.execute_statement(request, shard, session, "the ghost of a router");
            self.commit_rows(shard, Some(session));
        }
    }

    /// The router of some clients has died: what is sent is the database's, all else is gone.
    pub fn bury_clients(&mut self, router: usize) {
        for client in self.clients.iter_mut().filter(|client| client.router == router) {
            if let Phase::Sent(ticket, session) = std::mem::replace(&mut client.phase, Phase::Idle) {
                self.ghosts.push(Ghost { request: client.request, shard: ticket.shard, session });
            }
        }
    }
}

fn allows(state: State, access: Access) -> bool {
    match state {
        State::Online => true,
        State::ReadOnly => access == Access::Read,
        State::Offline => false,
    }
}

/// The shard that a view sends a unit to, for comparing views.
pub fn owner_in(view: &View, world: &World, map: usize, unit: usize) -> Option<(ShardId, State)> {
    let space = &world.spaces[map];
    let known = view.maps.get(space.name())?;
    let located = known.map.locate_placement(space.bound(unit).as_slice())?;
    Some((located.shard().clone(), located.state()))
}
