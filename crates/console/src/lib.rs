//! The web console's files, embedded in the program. The pages use the admin API only, as any other client does.

/// One file of the console.
#[derive(Debug, Clone, Copy)]
pub struct Asset {
    /// Its path at the admin door.
    pub path: &'static str,
    /// What it is.
    pub content_type: &'static str,
    /// Its bytes.
    pub bytes: &'static [u8],
}

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const PICTURE: &str = "image/svg+xml";

macro_rules! asset {
    ($path:literal, $file:literal, $content_type:expr) => {
        Asset {
            path: $path,
            content_type: $content_type,
            bytes: include_bytes!(concat!("../assets/", $file)),
        }
    };
}

/// All files.
pub const ASSETS: &[Asset] = &[
    asset!("/", "index.html", HTML),
    asset!("/console/api.js", "api.js", SCRIPT),
    asset!("/console/app.js", "app.js", SCRIPT),
    asset!("/console/charts.js", "charts.js", SCRIPT),
    asset!("/console/colours.js", "colours.js", SCRIPT),
    asset!("/console/dom.js", "dom.js", SCRIPT),
    asset!("/console/icon.svg", "icon.svg", PICTURE),
    asset!("/console/live.js", "live.js", SCRIPT),
    asset!("/console/moves.js", "moves.js", SCRIPT),
    asset!("/console/pages/archives.js", "pages/archives.js", SCRIPT),
    asset!("/console/pages/login.js", "pages/login.js", SCRIPT),
    asset!("/console/pages/maps.js", "pages/maps.js", SCRIPT),
    asset!("/console/pages/operations.js", "pages/operations.js", SCRIPT),
    asset!("/console/pages/query.js", "pages/query.js", SCRIPT),
    asset!("/console/pages/shardlets.js", "pages/shardlets.js", SCRIPT),
    asset!("/console/pages/shards.js", "pages/shards.js", SCRIPT),
    asset!("/console/style.css", "style.css", CSS),
];

#[cfg(test)]
mod tests;
