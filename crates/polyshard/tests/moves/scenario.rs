//! One kill at one state of a move while callers write: it ends by itself, and nothing acknowledged is lost or doubled.

use crate::cluster::{CATALOG, Cluster, SOURCE, TARGET};
use crate::support::{json, run};

/// What is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The only server process, which callers are connected to; it is started again.
    Server,
    /// The server process that moves, where there is another one.
    Mover,
    /// The database that the rows leave.
    Source,
    /// The database that they go to.
    Target,
    /// The database of the catalog.
    Catalog,
}

/// The persisted state of the move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Preparing,
    Copying,
    CatchingUp,
    Fencing,
    /// Recorded in the catalog; the source still owns the range.
    Departing,
    /// The source has let go; the catalog does not know yet.
    Departed,
    Activating,
    Keeping,
    Cleaning,
    /// It was cancelled, and clears away what it has copied.
    RollingBack,
    /// It is done, and is being undone: at the departure of the way back.
    Undoing,
}

impl State {
    /// Where the move waits to be killed.
    fn place(self) -> &'static str {
        match self {
            State::Preparing => "prepare.before",
            State::Copying => "copy.before",
            State::CatchingUp => "verify.before",
            State::Fencing => "settle.before",
            State::Departing | State::Undoing => "depart.before",
            State::Departed => "activate_from.before",
            State::Activating => "activate.before",
            State::Keeping => "keep.before",
            State::Cleaning => "clean.before",
            State::RollingBack => "clear.before",
        }
    }

    /// What an operator sees of it then.
    fn step(self) -> &'static str {
        match self {
            State::Preparing => "planned",
            State::Copying => "copying",
            State::CatchingUp => "catching_up",
            State::Fencing | State::Departing | State::Departed | State::Activating | State::Undoing => {
                "switching"
            }
            State::Keeping => "keeping",
            State::Cleaning => "cleaning",
            State::RollingBack => "rolling_back",
        }
    }

    /// Whether it can only go forward from here.
    fn has_left(self) -> bool {
        matches!(self, State::Departed | State::Activating | State::Keeping | State::Cleaning)
    }
}

/// The tenants that move.
const MOVING: std::ops::Range<i64> = 5..15;

/// D4, E4: kills the part at the state, on PostgreSQL.
pub fn survives(part: Part, state: State) {
    let cluster = match part {
        Part::Server => Cluster::together(1),
        Part::Mover => Cluster::together(2),
        Part::Source | Part::Target | Part::Catalog => Cluster::apart(1),
    };
    play(cluster, part, state);
}

/// The same with the only process, on SQLite.
pub fn survives_on_files(state: State) {
    play(Cluster::embedded(), Part::Server, state);
}

fn play(mut cluster: Cluster, part: Part, state: State) {
    // Callers of a process that lives see nothing of the death of another.
    let spared = part == Part::Mover;
    let writers = cluster.writers(if spared { &[1] } else { &[0] });
    cluster.ledger.until_written(MOVING, 20);
    let operation = go_to(&cluster, state);
    kill(&mut cluster, part);
    let ended = cluster.ended(&operation);
    let moved = ended["state"] == "done";
    assert!(moved || ended["state"] == "rolled_back", "{ended}");
    assert!(moved || !state.has_left(), "it went back behind its point of no return: {ended}");
    assert!(!moved || state != State::RollingBack, "it was cancelled: {ended}");
    let database = matches!(part, Part::Source | Part::Target | Part::Catalog);
    assert!(moved || database || state == State::RollingBack, "nothing was wrong with the shards: {ended}");
    let forth = moved == (state != State::Undoing);
    let owner = if forth { cluster.target() } else { cluster.source() };
    for tenant in MOVING {
        assert_eq!(cluster.owner(tenant), owner, "{tenant}, after {ended}");
    }
    cluster.ledger.until_written(MOVING, 30);
    // Nothing is in the way of the next one.
    let next = if forth { cluster.source() } else { cluster.target() };
    run(cluster.any(), &format!("move tenants --range 5..15 --to {next} --wait")).ok();
    cluster.ledger.until_written(MOVING, 10);
    writers.stop();
    if spared {
        assert_eq!(cluster.ledger.errors_of(1), Vec::<String>::new(), "callers of the process that lives");
    }
    cluster.assert_whole();
}

/// Begins a move, and has it wait at the state; answers the operation.
fn go_to(cluster: &Cluster, state: State) -> String {
    let place = state.place();
    let target = cluster.target();
    let keep = if matches!(state, State::Keeping | State::Undoing) { " --keep 1s" } else { "" };
    let begin = || cluster.begin(&format!("move tenants --range 5..15 --to {target}{keep}"));
    let operation = match state {
        State::RollingBack => {
            cluster.hold("verify.before");
            let operation = begin();
            cluster.await_held("verify.before");
            cluster.hold(place);
            run(cluster.process(0), &format!("ops cancel {operation}")).ok();
            cluster.let_go_of("verify.before");
            operation
        }
        State::Undoing => {
            // Kept for as long as it takes to ask.
            cluster.hold("keep.before");
            let operation = begin();
            cluster.await_held("keep.before");
            cluster.ledger.until_written(MOVING, 20);
            cluster.hold(place);
            let undo = json(cluster.process(0), &format!("ops undo {operation}"));
            cluster.let_go_of("keep.before");
            undo["id"].as_str().expect("an id").to_owned()
        }
        _ => {
            cluster.hold(place);
            begin()
        }
    };
    cluster.await_held(place);
    let shown = cluster.operation(&operation).expect("the catalog answers");
    assert_eq!((&shown["state"], &shown["step"]), (&"running".into(), &state.step().into()), "{shown}");
    operation
}

fn kill(cluster: &mut Cluster, part: Part) {
    let database = |cluster: &mut Cluster, number: usize| {
        cluster.fleet.as_mut().expect("databases of their own").servers[number].kill9();
        // It goes on while the database is away.
        cluster.let_go();
        cluster.fleet.as_mut().expect("databases of their own").servers[number].start_again();
    };
    match part {
        Part::Server => {
            cluster.kill(0);
            cluster.let_go();
            cluster.start(0);
        }
        Part::Mover => {
            cluster.kill(0);
            cluster.let_go();
        }
        Part::Source => database(cluster, SOURCE),
        Part::Target => database(cluster, TARGET),
        Part::Catalog => database(cluster, CATALOG),
    }
}
