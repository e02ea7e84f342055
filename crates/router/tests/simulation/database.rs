//! A database of the simulation: transactions that are kept, dropped, or kept without anybody being told.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use rand::RngExt;
use rand::rngs::StdRng;

/// What becomes of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// All goes well.
    None,
    /// It never arrives.
    Lost,
    /// It is done, and the reply is lost.
    ReplyLost,
    /// The reply is lost, and whether it is done is decided later: before the next transaction at the latest,
    /// since every transaction of the protocol begins by taking the same lock.
    Late,
}

/// Why a transaction gave no reply.
#[derive(Debug)]
pub enum Trouble<E> {
    /// The protocol said no; nothing was changed.
    Refused(E),
    /// It may or may not have happened.
    Unknown,
}

/// A state with transactions on it.
pub struct Database<T> {
    /// What is committed.
    pub state: T,
    late: Option<T>,
    /// Counts commits.
    pub commits: u64,
}

impl<T: Clone> Database<T> {
    pub fn new(state: T) -> Database<T> {
        Database { state, late: None, commits: 0 }
    }

    /// One transaction, with what the fault makes of it.
    pub fn transact<R, E>(
        &mut self,
        rng: &mut StdRng,
        fault: Fault,
        work: impl FnOnce(&mut T) -> Result<R, E>,
    ) -> Result<R, Trouble<E>> {
        if fault == Fault::Lost {
            return Err(Trouble::Unknown);
        }
        self.decide(rng);
        let mut next = self.state.clone();
        let reply = work(&mut next).map_err(Trouble::Refused)?;
        match fault {
            Fault::Late => self.late = Some(next),
            Fault::None | Fault::ReplyLost | Fault::Lost => self.commit(next),
        }
        if fault == Fault::None { Ok(reply) } else { Err(Trouble::Unknown) }
    }

    /// A transaction that changes nothing.
    pub fn look<R>(&mut self, rng: &mut StdRng, fault: Fault, work: impl FnOnce(&mut T) -> R) -> Option<R> {
        if fault == Fault::Lost {
            return None;
        }
        self.decide(rng);
        let reply = work(&mut self.state);
        (fault == Fault::None).then_some(reply)
    }

    /// Decides a commit that was under way.
    pub fn decide(&mut self, rng: &mut StdRng) {
        if let Some(next) = self.late.take()
            && rng.random_bool(0.5)
        {
            self.commit(next);
        }
    }

    fn commit(&mut self, next: T) {
        self.state = next;
        self.commits += 1;
    }
}

/// Runs a future that never waits.
pub fn now<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("the protocol on memory has nothing to wait for"),
    }
}
