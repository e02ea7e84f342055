//! Lets tests kill the server at a named step of an operation, or have it wait there.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use polyshard_catalog::Failpoint;

/// The variable that names a place, such as `publish.before`. Shards are left out of the place's name:
/// `prepare.after` is after the first shard has prepared.
const VARIABLE: &str = "POLYSHARD_FAILPOINT";
/// The variable that names a folder: the server waits at a place for as long as the folder has a file of its name.
const HOLD_VARIABLE: &str = "POLYSHARD_FAILPOINT_HOLD";
/// How often the file is looked for.
const HOLD_LOOK: Duration = Duration::from_millis(3);

/// A failpoint that ends the process at once, as kill -9 would, or has it wait, if the variables ask for one.
pub(crate) fn from_variable(variable: impl Fn(&str) -> Option<String>) -> Option<Failpoint> {
    let (wanted, folder) = (variable(VARIABLE), variable(HOLD_VARIABLE).map(PathBuf::from));
    if let Some(place) = &wanted {
        tracing::warn!(place, "this server will end itself at a failpoint");
    }
    if wanted.is_none() && folder.is_none() {
        return None;
    }
    Some(Arc::new(move |place: &str| {
        let short = without_shard(place);
        if wanted.as_ref().is_some_and(|wanted| short == *wanted || place == wanted) {
            std::process::abort();
        }
        if let Some(folder) = &folder {
            hold(&folder.join(&short), place);
        }
        false
    }))
}

/// Waits while the file is there.
fn hold(file: &Path, place: &str) {
    if !file.exists() {
        return;
    }
    tracing::warn!(place, "held at a failpoint");
    // Other tasks of this thread go on elsewhere.
    tokio::task::block_in_place(|| {
        while file.exists() {
            std::thread::sleep(HOLD_LOOK);
        }
    });
}

fn without_shard(place: &str) -> String {
    match (place.split_once(':'), place.rsplit_once('.')) {
        (Some((action, _)), Some((_, moment))) => format!("{action}.{moment}"),
        _ => place.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_place_is_named_with_or_without_its_shard() {
        assert_eq!(super::without_shard("prepare:s1.after"), "prepare.after");
        assert_eq!(super::without_shard("publish.before"), "publish.before");
    }
}
