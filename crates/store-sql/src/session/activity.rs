//! Which sessions this process has, for `pg_stat_activity` on SQLite shards.

use std::sync::Arc;

use super::Session;

/// What others may know of a session.
#[derive(Clone, Default)]
pub(crate) struct About {
    /// Whose it is; nothing for one that works for another session.
    user: String,
    application: String,
    began_micros: i64,
    /// The last text in which it asked for sessions.
    query: Option<Arc<str>>,
}

impl Session {
    /// Its number.
    pub(crate) fn process(&self) -> i32 {
        self.cancel.process
    }

    /// Enters it among those that are shown.
    pub(super) fn note_beginning(&self) {
        let (user, now) = (self.user_name().to_owned(), self.door.now_micros());
        self.cancel.running.about(|about| (about.user, about.began_micros) = (user, now));
    }

    /// Notes what the client calls itself.
    pub(crate) fn note_application(&self, name: &str) {
        self.cancel.running.about(|about| name.clone_into(&mut about.application));
    }

    /// Notes what is asked, where that is shown.
    pub(crate) fn note_query(&self, text: &Arc<str>) {
        self.cancel.running.about(|about| about.query = Some(text.clone()));
    }

    /// The sessions that the user may see, as JSON by the columns of `pg_stat_activity`: all, or his own. What others
    /// are doing is not known.
    pub(crate) fn activity(&mut self, now: i64) -> String {
        let began = self.transaction.began(now);
        let own = self.cancel.process;
        let (user, all) = (self.user_name(), self.lite_settings.is_superuser);
        let mut sessions = self.door.cancels.all();
        sessions.retain(|(_, about)| !about.user.is_empty() && (all || about.user == user));
        sessions.sort_by_key(|(process, _)| *process);
        let shown = sessions.into_iter().map(|(process, about)| {
            let is_own = process == own;
            let query = about.query.filter(|_| is_own);
            serde_json::json!({
                "pid": process,
                "usename": about.user,
                "application_name": about.application,
                "backend_start": about.began_micros,
                "xact_start": is_own.then_some(began),
                "query_start": is_own.then_some(now),
                "state": is_own.then_some("active"),
                "query": query.as_deref(),
            })
        });
        serde_json::Value::Array(shown.collect()).to_string()
    }
}
