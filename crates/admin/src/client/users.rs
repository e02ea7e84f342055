//! The client's calls about users and tokens.

use super::{Answered, Client};
use crate::operator::{Basis, Data};
use crate::types::{
    GrantView, MadeToken, NewPassword, NewToken, NewUser, TokensAnswer, UserName, UserView, UsersAnswer,
};

impl Client {
    /// All users.
    pub fn users(&self) -> Answered<UsersAnswer> {
        self.call(self.get("/v1/users"))
    }

    /// One user.
    pub fn user(&self, name: &UserName) -> Answered<UserView> {
        self.call(self.get(&user_path(name, "")))
    }

    /// Make a user.
    pub fn add_user(&self, user: &NewUser) -> Answered<UserView> {
        self.call_with(self.post("/v1/users"), user)
    }

    /// Give a user another password.
    pub fn set_password(&self, name: &UserName, password: &NewPassword) -> Answered<UserView> {
        self.call_with(self.post(&user_path(name, "/password")), password)
    }

    /// Remove a user.
    pub fn remove_user(&self, name: &UserName) -> Answered<()> {
        self.remove(&user_path(name, ""), name.as_str(), Data::Keep, Basis::Current)
    }

    /// Give a user a right.
    pub fn grant(&self, name: &UserName, grant: &GrantView) -> Answered<UserView> {
        self.call_with(self.post(&user_path(name, "/grant")), grant)
    }

    /// Take a right away.
    pub fn revoke(&self, name: &UserName, grant: &GrantView) -> Answered<UserView> {
        self.call_with(self.post(&user_path(name, "/revoke")), grant)
    }

    /// All tokens.
    pub fn tokens(&self) -> Answered<TokensAnswer> {
        self.call(self.get("/v1/tokens"))
    }

    /// Make a token.
    pub fn add_token(&self, token: &NewToken) -> Answered<MadeToken> {
        self.call_with(self.post("/v1/tokens"), token)
    }

    /// Remove a token.
    pub fn remove_token(&self, name: &UserName) -> Answered<()> {
        self.remove(&format!("/v1/tokens/{name}"), name.as_str(), Data::Keep, Basis::Current)
    }
}

fn user_path(name: &UserName, rest: &str) -> String {
    format!("/v1/users/{name}{rest}")
}
