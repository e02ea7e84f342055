//! The reference of all options as a Markdown table, for `docs/config.md`.

use super::options::{LISTS, OPTIONS, OptionSpec};

/// The tables of `docs/config.md`, between its two marks.
pub fn reference() -> String {
    let mut text = String::new();
    let mut section = None;
    for option in OPTIONS.iter() {
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
    for list in LISTS.iter() {
        text.push_str(&format!(
            "\n### [[{}]]\n\n| option | default | takes | what it does |\n|---|---|---|---|\n",
            list.name
        ));
        list.options.iter().for_each(|option| text.push_str(&row(option)));
    }
    text.push('\n');
    text
}

fn row(option: &OptionSpec) -> String {
    let default = if option.default.is_empty() { "none".to_owned() } else { format!("`{}`", option.default) };
    format!("| `{}` | {default} | {} | {} |\n", option.path, option.kind, option.about)
}
