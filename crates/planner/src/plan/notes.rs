//! What moving cannot help, in words: one key that is too hot, and hot keys beside each other.

use polyshard_map::{KeyRange, Scheme, ShardId};

use super::choose::Work;
use super::{Piece, percent};

/// A stretch of keys that gets this part of the requests, in percent …
const NEIGHBOURS_REQUESTS_PERCENT: f64 = 50.0;
/// … and has at most this part of the rows is a hot spot.
const NEIGHBOURS_ROWS_PERCENT: f64 = 10.0;

impl Work<'_> {
    /// Says why a shard stays full.
    pub(super) fn note_stuck(&mut self, from: &ShardId, mean: u64) {
        let own = self.heaviest_on(from);
        let Some(&(heaviest, weight)) = own.first() else { return };
        let range = &self.situation.pieces[heaviest].range;
        let full = format!(
            "shard {from} stays at {} of the {}, where {} would be even",
            percent(self.load(from)),
            self.word(),
            percent(mean)
        );
        self.notes.push(match (weight > mean, own.len()) {
            (true, 1) => format!(
                "{full}: {} alone is {}, and has the shard to itself already, so that moving cannot help; give this \
                 shard a stronger server, or divide the work of this key by a key with more parts",
                self.words(range),
                percent(weight)
            ),
            (true, _) => format!(
                "{full}: {} alone is {}, and cannot be divided further; give it a shard of its own with 'polyshard \
                 isolate', or spread its rows by a hash map if keys beside each other are hot",
                self.words(range),
                percent(weight)
            ),
            (false, _) => {
                format!("{full}: no other shard may take more, because of rules, limits, or what was moved lately")
            }
        });
    }

    /// Says that hot keys are beside each other on a map that keeps neighbours together.
    pub(super) fn note_neighbours(&mut self) {
        let keeps_order =
            self.situation.definition.is_some_and(|definition| matches!(definition.scheme(), Scheme::Range));
        let Some((range, part)) = keeps_order.then(|| hot_stretch(self.situation.pieces)).flatten() else {
            return;
        };
        self.notes.push(format!(
            "keys beside each other are hot: {} has {part:.0} % of the requests; if the keys after them will be as hot \
             (a number or time that grows), moving helps only for a while: spread them by a hash map instead",
            self.words(&range)
        ));
    }
}

/// The shortest stretch of neighbouring pieces that gets half of the requests, if that is a hot spot, and its part of
/// the requests in percent.
pub(super) fn hot_stretch(pieces: &[Piece]) -> Option<(KeyRange, f64)> {
    let mut sorted: Vec<&Piece> = pieces.iter().collect();
    sorted.sort_by(|a, b| a.range.cmp(&b.range));
    let requests: f64 = sorted.iter().map(|piece| piece.requests).sum();
    let rows: f64 = sorted.iter().map(|piece| piece.rows as f64).sum();
    if requests <= 0.0 || rows <= 0.0 {
        return None;
    }
    let (mut first, mut inside, mut held) = (0, 0.0, 0.0);
    let mut best: Option<(usize, usize, f64, f64)> = None;
    for (last, piece) in sorted.iter().enumerate() {
        inside += piece.requests;
        held += piece.rows as f64;
        while first < last
            && (inside - sorted[first].requests) * 100.0 / requests >= NEIGHBOURS_REQUESTS_PERCENT
        {
            inside -= sorted[first].requests;
            held -= sorted[first].rows as f64;
            first += 1;
        }
        let enough = inside * 100.0 / requests >= NEIGHBOURS_REQUESTS_PERCENT;
        if enough && best.is_none_or(|(_, _, _, least)| held < least) {
            best = Some((first, last, inside, held));
        }
    }
    let (first, last, inside, held) = best?;
    let busy = sorted[first..=last].iter().filter(|piece| piece.requests > 0.0).count();
    // One key alone is another matter: it has no neighbours to be spread among.
    if busy < 2 || held * 100.0 / rows > NEIGHBOURS_ROWS_PERCENT {
        return None;
    }
    let range = KeyRange::new(sorted[first].range.lo().clone(), sorted[last].range.hi().cloned()).ok()?;
    Some((range, inside * 100.0 / requests))
}
