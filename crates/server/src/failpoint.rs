//! Lets tests kill the server at a named step of an operation.

use polyshard_catalog::Failpoint;

/// The variable that names a place, such as `publish.before`. Shards are left out of the place's name:
/// `prepare.after` is after the first shard has prepared.
const VARIABLE: &str = "POLYSHARD_FAILPOINT";

/// A failpoint that ends the process at once, as kill -9 would, if the variable asks for one.
pub(crate) fn from_variable(variable: impl Fn(&str) -> Option<String>) -> Option<Failpoint> {
    let wanted = variable(VARIABLE)?;
    tracing::warn!(place = wanted, "this server will end itself at a failpoint");
    Some(std::sync::Arc::new(move |place: &str| {
        if without_shard(place) == wanted || place == wanted {
            std::process::abort();
        }
        false
    }))
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
