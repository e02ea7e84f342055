//! Ctrl-C while an operation is looked at: the looking on ends, the operation does not, and that is said.

use std::io::{self, Write};
use std::sync::{Mutex, OnceLock, PoisonError};

use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::runtime::runtime;

/// What a command that was interrupted ends with, as shells have it.
const INTERRUPTED: i32 = 130;

/// Who listens, from the first operation that is followed to the end of the command; none if nobody can.
static LISTENER: OnceLock<Option<Runtime>> = OnceLock::new();
/// The operation that is looked at just now.
static FOLLOWED: Mutex<Option<String>> = Mutex::new(None);

/// While it is there, Ctrl-C says that an operation goes on.
#[must_use]
pub struct Followed;

/// Has Ctrl-C say that this operation goes on without the command.
pub fn follow(id: &str) -> Followed {
    set(Some(id.to_owned()));
    LISTENER.get_or_init(listen);
    Followed
}

impl Drop for Followed {
    fn drop(&mut self) {
        set(None);
    }
}

fn set(id: Option<String>) {
    *FOLLOWED.lock().unwrap_or_else(PoisonError::into_inner) = id;
}

/// Without it Ctrl-C ends the command all the same, and only says nothing.
fn listen() -> Option<Runtime> {
    let runtime = runtime().ok()?;
    let interrupts = {
        let _inside = runtime.enter();
        signal(SignalKind::interrupt()).ok()?
    };
    runtime.spawn(end(interrupts));
    Some(runtime)
}

async fn end(mut interrupts: Signal) {
    if interrupts.recv().await.is_none() {
        return;
    }
    if let Some(id) = &*FOLLOWED.lock().unwrap_or_else(PoisonError::into_inner) {
        // Whoever has closed stderr does not want to be told.
        let _gone = io::stderr().write_all(words(id).as_bytes());
    }
    std::process::exit(INTERRUPTED);
}

fn words(id: &str) -> String {
    let short = id.get(..8).unwrap_or(id);
    format!(
        "\nIt goes on without this command: 'polyshard ops follow {short}' looks on again, 'polyshard ops cancel \
         {short}' gives it up.\n"
    )
}
