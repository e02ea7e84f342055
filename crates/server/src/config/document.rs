//! The reference of all options as a Markdown table, for `docs/config.md`.

use super::options::{ACCOUNT_OPTIONS, BACKUP_OPTIONS, OPTIONS, OptionSpec, SHARD_OPTIONS};

/// The tables of `docs/config.md`, between its two marks.
pub fn reference() -> String {
    let mut text = String::new();
    let mut section = None;
    for option in OPTIONS {
        if section != Some(option.section()) {
            section = Some(option.section());
            let title = if option.section().is_empty() {
                "Top level".to_owned()
            } else {
                format!("[{}]", option.section())
            };
            text.push_str(&format!(
                "\n### {title}\n\n| option | default | takes | what it does |\n|---|---|---|---|\n"
            ));
        }
        text.push_str(&row(option));
    }
    for (name, options) in
        [("shards", SHARD_OPTIONS), ("accounts", ACCOUNT_OPTIONS), ("backups", BACKUP_OPTIONS)]
    {
        text.push_str(&format!(
            "\n### [[{name}]]\n\n| option | default | takes | what it does |\n|---|---|---|---|\n"
        ));
        options.iter().for_each(|option| text.push_str(&row(option)));
    }
    text.push('\n');
    text
}

fn row(option: &OptionSpec) -> String {
    let default = if option.default.is_empty() { "none".to_owned() } else { format!("`{}`", option.default) };
    format!("| `{}` | {default} | {} | {} |\n", option.path, option.kind, option.about)
}
