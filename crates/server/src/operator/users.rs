//! What administrators ask about users, rights and tokens: kept in the catalog, so that every process has them at once.

use std::sync::Arc;

use polyshard_admin::types::{
    GrantRange, GrantView, KeyText, MadeToken, NewPassword, NewToken, NewUser, Right as RightView,
    Role as RoleView, StoreId as StoreIdView, TokenView, UserName, UserView,
};
use polyshard_admin::{Answer, Bearer, ErrorCode, Problem, Tokens, Users};
use polyshard_catalog::{CatalogError, TOKEN_STORE, USER_STORE};
use polyshard_map::KeyType;
use polyshard_store::rights::{Grant, GrantedKeys, Right, Role, TokenBody, USER_FORMAT, User, UserBody};
use polyshard_store::{Host, Stores};
use polyshard_store_sql::kept_password;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::Operations;
use crate::problem;
use crate::stores::STORES;

/// Grants of one user: each statement is judged by all of them.
const GRANTS_MAX: usize = 1_000;
/// Bytes of randomness in a token.
const TOKEN_BYTES: usize = 24;

/// A refusal inside a transaction of the catalog, in either's words.
enum Refusal {
    Catalog(CatalogError),
    Problem(Problem),
}

impl From<CatalogError> for Refusal {
    fn from(error: CatalogError) -> Refusal {
        Refusal::Catalog(error)
    }
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Refusal {
        Refusal::Problem(problem)
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Problem {
        match refusal {
            Refusal::Catalog(error) => problem::of_catalog(&error),
            Refusal::Problem(problem) => problem,
        }
    }
}

impl Operations {
    async fn user_views(&self) -> Result<Vec<UserView>, Problem> {
        self.see().await?;
        self.host.users().all().map(user_view).collect()
    }

    async fn user_view(&self, name: UserName) -> Result<UserView, Problem> {
        self.see().await?;
        let users = self.host.users();
        users.user(name.as_str()).ok_or_else(|| no_user(&name)).and_then(user_view)
    }

    async fn new_user(&self, new: NewUser) -> Result<UserView, Problem> {
        let name = new.name.clone();
        if self.config.sql.listen.is_some() && self.config.sql.user == name.as_str() {
            let message = format!("{name} is the user of the configuration (sql.user), who has all rights");
            return Err(Problem::new(ErrorCode::Exists, message).with_remedy("choose another name"));
        }
        let families = STORES.families().into_iter();
        let mut accounts = families.flat_map(|family| (family.owners)(&self.config.stores));
        if new.account && !accounts.any(|account| account == name.as_str()) {
            return Err(Problem::not_found(format!("the configuration has no account {name}")).with_remedy(
                "accounts are made in the configuration file: see [[accounts]] in docs/config.md",
            ));
        }
        if new.password.is_none() && !new.account {
            return Err(Problem::invalid(
                "password",
                format!("user {name} has neither a password nor an account"),
            )
            .with_remedy("give a password, or say that it is an account"));
        }
        let scram = new.password.as_deref().map(verifier).transpose()?;
        let body = UserBody { format: USER_FORMAT, scram, account: new.account, grants: Vec::new() };
        let change = |old: Option<Value>| -> Result<Value, Refusal> {
            match old {
                None => written(&body),
                Some(_) => {
                    let problem = Problem::new(ErrorCode::Exists, format!("there is a user {name} already"));
                    Err(problem.with_remedy("choose another name, or 'polyshard user passwd'").into())
                }
            }
        };
        self.catalog.put_user(USER_STORE, name.as_str(), change).await?;
        self.tell_all().await?;
        tracing::info!(user = %new.name, account = new.account, "user added");
        self.user_view(new.name).await
    }

    /// Changes a user that there is.
    async fn change_user(
        &self,
        name: &UserName,
        change: impl FnOnce(&mut UserBody) -> Result<(), Problem>,
    ) -> Result<UserView, Problem> {
        let change = |old: Option<Value>| -> Result<Value, Refusal> {
            let body = read(old.ok_or_else(|| no_user(name))?, name)?;
            let mut body = body.with_present_ids(self.host.stores());
            change(&mut body)?;
            written(&body)
        };
        self.catalog.put_user(USER_STORE, name.as_str(), change).await?;
        self.tell_all().await?;
        self.user_view(name.clone()).await
    }

    async fn change_password(&self, name: UserName, new: NewPassword) -> Result<UserView, Problem> {
        let scram = verifier(&new.password)?;
        let view = self
            .change_user(&name, |body| {
                body.scram = Some(scram);
                Ok(())
            })
            .await?;
        tracing::info!(user = %name, "password changed");
        Ok(view)
    }

    async fn forget_user(&self, name: UserName) -> Result<(), Problem> {
        self.forget(USER_STORE, &name, || no_user(&name)).await?;
        tracing::info!(user = %name, "user removed");
        Ok(())
    }

    async fn forget(
        &self,
        store: &str,
        name: &UserName,
        missing: impl FnOnce() -> Problem,
    ) -> Result<(), Problem> {
        let gone = self.catalog.remove_user(store, name.as_str()).await;
        let gone = gone.map_err(|error| problem::of_catalog(&error))?;
        self.tell_all().await?;
        if gone { Ok(()) } else { Err(missing()) }
    }

    async fn give(&self, name: UserName, asked: GrantView) -> Result<UserView, Problem> {
        let grant = self.checked(asked).await?;
        let shown = grant.to_string();
        let view = self
            .change_user(&name, |body| {
                body.grants.retain(|known| !known.is_on_same(&grant));
                if body.grants.len() >= GRANTS_MAX {
                    let message = format!("{name} has {GRANTS_MAX} rights, which is the most");
                    return Err(Problem::new(ErrorCode::Conflict, message)
                        .with_remedy("give a right on a range of keys, or on a map"));
                }
                body.grants.push(grant);
                Ok(())
            })
            .await?;
        tracing::info!(user = %name, grant = shown, "right granted");
        Ok(view)
    }

    async fn take(&self, name: UserName, asked: GrantView) -> Result<UserView, Problem> {
        // As it was granted, though its map may be gone since.
        let grant = match self.checked(asked.clone()).await {
            Ok(grant) => grant,
            Err(_) => as_said(&asked, self.host.stores())?,
        };
        let shown = grant.to_string();
        let view = self
            .change_user(&name, |body| {
                let before = body.grants.len();
                body.grants.retain(|known| known.to_string() != shown);
                if body.grants.len() < before {
                    return Ok(());
                }
                let message = format!("{name} was not granted {shown}");
                Err(Problem::not_found(message).with_remedy(format!(
                    "see 'polyshard user show {name}': a right is taken away as it was given"
                )))
            })
            .await?;
        tracing::info!(user = %name, grant = shown, "right revoked");
        Ok(view)
    }

    /// A grant that can be judged by: what it names is there, and its keys are of its map's type.
    async fn checked(&self, asked: GrantView) -> Result<Grant, Problem> {
        let mut grant = as_said(&asked, self.host.stores())?;
        if grant.right == Right::Admin && !grant.is_everywhere() {
            return Err(Problem::invalid("right", "admin is a right on everything")
                .with_remedy("leave out what it is limited to, or grant schema"));
        }
        if grant.right == Right::Schema
            && (grant.map.is_some() || grant.table.is_some() || grant.keys.is_some())
        {
            return Err(Problem::invalid("right", "schema is a right on a store, or on everything")
                .with_remedy("limit it with --store alone, or grant write"));
        }
        let Some(map) = &grant.map else {
            if asked.key.is_some() || asked.range.is_some() {
                return Err(Problem::invalid("map", "keys are keys of a map").with_remedy("say --map"));
            }
            return Ok(grant);
        };
        let known = self.known(map).await?;
        let key_type = known.map.definition().key_type();
        grant.keys = match (&asked.key, &asked.range) {
            (Some(key), None) => Some(GrantedKeys::Key(key_json(key_type, key, "key")?)),
            (None, Some(GrantRange { from, to })) => {
                let side = |key: &Option<KeyText>| {
                    key.as_ref().map(|key| key_json(key_type, key, "range")).transpose()
                };
                Some(GrantedKeys::Range(side(from)?, side(to)?))
            }
            (None, None) => None,
            (Some(_), Some(_)) => {
                return Err(Problem::invalid("key", "a key and a range").with_remedy("say one of them"));
            }
        };
        if let Some(keys) = &grant.keys {
            keys.check(key_type).map_err(|error| Problem::invalid("range", error))?;
        }
        Ok(grant)
    }

    async fn token_views(&self) -> Result<Vec<TokenView>, Problem> {
        self.see().await?;
        let users = self.host.users();
        let shown = users
            .tokens()
            .iter()
            .map(|token| Ok(TokenView { name: name_of(&token.name)?, role: role_view(token.role) }));
        shown.collect()
    }

    async fn new_token(&self, new: NewToken) -> Result<MadeToken, Problem> {
        let bytes: [u8; TOKEN_BYTES] = rand::random();
        let token = format!("ps_{}", hex(&bytes));
        let body =
            TokenBody { format: USER_FORMAT, role: role_of(new.role), sha256: digest(token.as_bytes()) };
        let change = |old: Option<Value>| -> Result<Value, Refusal> {
            if old.is_some() {
                let message = format!("there is a token {} already", new.name);
                return Err(Problem::new(ErrorCode::Exists, message)
                    .with_remedy("choose another name, or remove it first")
                    .into());
            }
            let written = serde_json::to_value(&body);
            written.map_err(|error| Problem::new(ErrorCode::Internal, error.to_string()).into())
        };
        self.catalog.put_user(TOKEN_STORE, new.name.as_str(), change).await?;
        self.see().await?;
        tracing::info!(token = %new.name, role = %new.role, "token added");
        Ok(MadeToken { name: new.name, role: new.role, token })
    }

    async fn forget_token(&self, name: UserName) -> Result<(), Problem> {
        let missing = || {
            Problem::not_found(format!("there is no token {name}")).with_remedy("see 'polyshard token list'")
        };
        self.forget(TOKEN_STORE, &name, missing).await?;
        tracing::info!(token = %name, "token removed");
        Ok(())
    }
}

fn no_user(name: &UserName) -> Problem {
    Problem::not_found(format!("there is no user {name}")).with_remedy("see 'polyshard user list'")
}

fn name_of(name: &str) -> Result<UserName, Problem> {
    UserName::new(name).map_err(|error| Problem::new(ErrorCode::Internal, error))
}

/// What is kept of a password; a verifier that the client has made is taken as it is.
fn verifier(password: &str) -> Result<String, Problem> {
    kept_password(password, &|bytes| rand::fill(bytes))
        .map_err(|error| Problem::invalid("password", error).with_remedy("choose another one"))
}

fn read(body: Value, name: &UserName) -> Result<UserBody, Problem> {
    let wrong = || Problem::new(ErrorCode::Internal, format!("the record of user {name} cannot be read"));
    serde_json::from_value(body).map_err(|_| wrong())
}

fn written(body: &UserBody) -> Result<Value, Refusal> {
    let wrong = |_| Problem::new(ErrorCode::Internal, "the record of a user cannot be written");
    Ok(serde_json::to_value(body).map_err(wrong)?)
}

fn key_json(key_type: &KeyType, key: &KeyText, field: &'static str) -> Result<Value, Problem> {
    let parsed = key_type.parse(&key.to_string());
    Ok(parsed.map_err(|error| Problem::invalid(field, error.to_string()))?.to_json())
}

/// A grant as the catalog has it; its keys as they are said.
fn as_said(asked: &GrantView, stores: Stores) -> Result<Grant, Problem> {
    let json = |key: &KeyText| key.json().clone();
    let keys = match (&asked.key, &asked.range) {
        (Some(key), _) => Some(GrantedKeys::Key(json(key))),
        (None, Some(range)) => {
            Some(GrantedKeys::Range(range.from.as_ref().map(json), range.to.as_ref().map(json)))
        }
        (None, None) => None,
    };
    let id = asked.store.as_ref().map(|store| stores.id(store.as_str())).transpose();
    let store = id.map_err(|error| {
        Problem::invalid("store", error.to_string()).with_remedy("name one of the stores, or leave it out")
    })?;
    let ignores_case =
        store.as_ref().and_then(|id| stores.find(id.as_str())).is_some_and(|store| store.ignores_case);
    let table = asked.table.as_ref().map(|table| match ignores_case {
        true => table.to_ascii_lowercase(),
        false => table.strip_prefix("public.").unwrap_or(table).to_owned(),
    });
    let right = match asked.right {
        RightView::Read => Right::Read,
        RightView::Write => Right::Write,
        RightView::Schema => Right::Schema,
        RightView::Admin => Right::Admin,
    };
    Ok(Grant { right, store, map: asked.map.clone(), keys, table })
}

fn user_view(user: &User) -> Result<UserView, Problem> {
    let grants = user.grants.iter().map(grant_view).collect();
    let (password, account) = (user.scram.is_some(), user.account);
    Ok(UserView { name: name_of(&user.name)?, password, account, grants })
}

fn grant_view(grant: &Grant) -> GrantView {
    let text = |key: &Value| KeyText::from(key.clone());
    let (key, range) = match &grant.keys {
        None => (None, None),
        Some(GrantedKeys::Key(key)) => (Some(text(key)), None),
        Some(GrantedKeys::Range(from, to)) => {
            (None, Some(GrantRange { from: from.as_ref().map(text), to: to.as_ref().map(text) }))
        }
    };
    let store = grant.store.as_ref().map(|store| StoreIdView::from(store.to_string()));
    let right = match grant.right {
        Right::Read => RightView::Read,
        Right::Write => RightView::Write,
        Right::Schema => RightView::Schema,
        Right::Admin => RightView::Admin,
    };
    GrantView { right, store, map: grant.map.clone(), key, range, table: grant.table.clone() }
}

fn role_view(role: Role) -> RoleView {
    match role {
        Role::Viewer => RoleView::Viewer,
        Role::Operator => RoleView::Operator,
        Role::Admin => RoleView::Admin,
    }
}

fn role_of(role: RoleView) -> Role {
    match role {
        RoleView::Viewer => Role::Viewer,
        RoleView::Operator => Role::Operator,
        RoleView::Admin => Role::Admin,
    }
}

fn digest(token: &[u8]) -> String {
    hex(&Sha256::digest(token))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Who bears the tokens of the catalog.
pub(crate) struct Bearers(pub(crate) Arc<Host>);

impl Tokens for Bearers {
    fn bearer(&self, token: &[u8]) -> Option<Bearer> {
        let users = self.0.users();
        let found = users.bearer(&digest(token))?;
        Some(Bearer { name: UserName::new(&found.name).ok()?, role: role_view(found.role) })
    }
}

impl Users for Operations {
    fn users(&self) -> Answer<'_, Vec<UserView>> {
        Box::pin(self.user_views())
    }
    fn user(&self, name: UserName) -> Answer<'_, UserView> {
        Box::pin(self.user_view(name))
    }
    fn add_user(&self, user: NewUser) -> Answer<'_, UserView> {
        Box::pin(self.new_user(user))
    }
    fn set_password(&self, name: UserName, password: NewPassword) -> Answer<'_, UserView> {
        Box::pin(self.change_password(name, password))
    }
    fn remove_user(&self, name: UserName) -> Answer<'_, ()> {
        Box::pin(self.forget_user(name))
    }
    fn grant(&self, name: UserName, grant: GrantView) -> Answer<'_, UserView> {
        Box::pin(self.give(name, grant))
    }
    fn revoke(&self, name: UserName, grant: GrantView) -> Answer<'_, UserView> {
        Box::pin(self.take(name, grant))
    }
    fn tokens(&self) -> Answer<'_, Vec<TokenView>> {
        Box::pin(self.token_views())
    }
    fn add_token(&self, token: NewToken) -> Answer<'_, MadeToken> {
        Box::pin(self.new_token(token))
    }
    fn remove_token(&self, name: UserName) -> Answer<'_, ()> {
        Box::pin(self.forget_token(name))
    }
}
