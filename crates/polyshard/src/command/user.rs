//! `polyshard user`: who may come in at the front doors, and what each may do.

use std::io::Read;

use clap::{Args, Subcommand};
use polyshard_admin::types::{
    GrantRange, GrantView, KeyText, NewPassword, NewUser, Right, StoreId, UserName, UserView, UsersAnswer,
};
use polyshard_admin::{Client, Problem};
use polyshard_map::MapName;

use crate::exit::{Exit, Failure};
use crate::output::Output;
use crate::selector::Ends;
use crate::table::table;

/// Longest password that is read.
const PASSWORD_BYTES_MAX: u64 = 64 * 1024;

/// Users.
#[derive(Debug, Subcommand)]
pub enum UserCommand {
    /// Make a user, without rights yet
    #[command(after_help = "\
Examples:
  polyshard user add alice --password-stdin < alice.password
  polyshard user add orders --account        limit an account of the configuration file

The password is kept as a SCRAM-SHA-256 verifier only. The user of the configuration file
(sql.user), and accounts that no user stands for, have all rights.")]
    Add {
        /// The name
        name: UserName,
        #[command(flatten)]
        password: PasswordArgs,
        /// It stands for the account of this name, at the doors of tables and queues, and limits it
        #[arg(long)]
        account: bool,
    },
    /// Give a user another password
    #[command(after_help = "Examples:\n  polyshard user passwd alice --password-stdin < new.password")]
    Passwd {
        /// The name
        name: UserName,
        #[command(flatten)]
        password: PasswordArgs,
    },
    /// All users
    #[command(after_help = "Examples:\n  polyshard user list\n  polyshard user list --json")]
    List,
    /// One user, with all rights
    #[command(after_help = "Examples:\n  polyshard user show alice")]
    Show {
        /// The name
        name: UserName,
    },
    /// Remove a user; its next statement is refused
    #[command(after_help = "Examples:\n  polyshard user remove alice")]
    Remove {
        /// The name
        name: UserName,
    },
    /// Give a user a right: read, write, schema or admin; each includes those before it
    #[command(after_help = "\
Examples:
  polyshard user grant alice read                                   everything, in all stores
  polyshard user grant alice write --map tenants --key 42           one tenant
  polyshard user grant alice read --store sql --table orders        one table
  polyshard user grant bob write --map tenants --range 1..1000      tenants 1 to 999
  polyshard user grant orders read --store queue                    an account: queues, to look at

On the same things a right takes the place of the one there is. Whoever has a right on keys may
only run statements that name such keys.")]
    Grant(GrantArgs),
    /// Take a right away, as it was given
    #[command(after_help = "\
Examples:
  polyshard user revoke alice write --map tenants --key 42")]
    Revoke(GrantArgs),
}

/// Where a password comes from.
#[derive(Debug, Args)]
#[group(skip)]
pub struct PasswordArgs {
    /// Read the password from the standard input; one line end at its end is not part of it
    #[arg(long)]
    password_stdin: bool,
}

impl PasswordArgs {
    fn read(&self) -> Result<Option<String>, Problem> {
        if !self.password_stdin {
            return Ok(None);
        }
        let mut text = String::new();
        let read = std::io::stdin().take(PASSWORD_BYTES_MAX).read_to_string(&mut text);
        read.map_err(|error| Problem::invalid("--password-stdin", format!("it cannot be read: {error}")))?;
        let line = text.strip_suffix('\n').unwrap_or(&text);
        Ok(Some(line.strip_suffix('\r').unwrap_or(line).to_owned()))
    }
}

/// A right on something.
#[derive(Debug, Args)]
pub struct GrantArgs {
    /// The user's name
    name: UserName,
    /// read, write, schema or admin
    #[arg(value_name = "RIGHT")]
    right: Right,
    /// In one store alone, such as sql, table, queue or blob
    #[arg(long, value_name = "STORE")]
    store: Option<StoreId>,
    /// On what one map places alone
    #[arg(long, value_name = "MAP")]
    map: Option<MapName>,
    /// On one key of the map alone
    #[arg(long, value_name = "KEY", allow_hyphen_values = true, requires = "map")]
    key: Option<String>,
    /// On the keys from LO (included) to HI (not included) alone; an empty side is infinite
    #[arg(long, value_name = "LO..HI", allow_hyphen_values = true, requires = "map", conflicts_with = "key")]
    range: Option<Ends>,
    /// On one table, queue or container alone
    #[arg(long, value_name = "NAME")]
    table: Option<String>,
}

impl GrantArgs {
    fn grant(&self) -> GrantView {
        let range = self.range.as_ref().map(|ends| {
            let (from, to) = ends.keys();
            GrantRange { from, to }
        });
        GrantView {
            right: self.right,
            store: self.store.clone(),
            map: self.map.clone(),
            key: self.key.as_ref().map(KeyText::text),
            range,
            table: self.table.clone(),
        }
    }
}

/// `user`.
pub fn run(command: &UserCommand, client: &Client, output: &Output) -> Result<Exit, Failure> {
    match command {
        UserCommand::Add { name, password, account } => {
            let new = NewUser { name: name.clone(), password: password.read()?, account: *account };
            let told = |user: &UserView| {
                format!(
                    "Added user {0}, without rights so far: 'polyshard user grant {0} …' gives some.\n",
                    user.name
                )
            };
            output.answer(&client.add_user(&new)?, told)
        }
        UserCommand::Passwd { name, password } => {
            let missing = || {
                Problem::invalid("--password-stdin", "there is no password")
                    .with_remedy("give it on the standard input, with --password-stdin")
            };
            let new = NewPassword { password: password.read()?.ok_or_else(missing)? };
            output.answer(&client.set_password(name, &new)?, |user| {
                format!("User {} has another password from the next login on.\n", user.name)
            })
        }
        UserCommand::List => output.answer(&client.users()?, user_table),
        UserCommand::Show { name } => output.answer(&client.user(name)?, shown),
        UserCommand::Remove { name } => {
            client.remove_user(name)?;
            output.answer(&serde_json::json!({ "removed": name }), |_| format!("Removed user {name}.\n"))
        }
        UserCommand::Grant(args) => output.answer(&client.grant(&args.name, &args.grant())?, shown),
        UserCommand::Revoke(args) => output.answer(&client.revoke(&args.name, &args.grant())?, shown),
    }
}

fn comes_in(user: &UserView) -> &'static str {
    match (user.password, user.account) {
        (true, true) => "password, account",
        (true, false) => "password",
        (false, true) => "account",
        (false, false) => "-",
    }
}

fn user_table(answer: &UsersAnswer) -> String {
    if answer.users.is_empty() {
        return "No users but those of the configuration file.\n".to_owned();
    }
    let rights = |user: &UserView| match user.grants.as_slice() {
        [] => "none".to_owned(),
        [one] => one.to_string(),
        [first, rest @ ..] => format!("{first}, and {} more", rest.len()),
    };
    table(
        ["user", "comes in by", "rights"],
        answer.users.iter().map(|user| [user.name.to_string(), comes_in(user).to_owned(), rights(user)]),
    )
}

fn shown(user: &UserView) -> String {
    let mut text = format!("{}, who comes in by {}, has ", user.name, comes_in(user));
    if user.grants.is_empty() {
        text.push_str("no rights.\n");
        return text;
    }
    text.push_str("these rights:\n");
    for grant in &user.grants {
        text.push_str(&format!("  {grant}\n"));
    }
    text
}
