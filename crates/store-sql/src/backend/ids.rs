//! The ids of types and tables on their way between a shard's session and the client: see [`crate::type_ids`].

use std::borrow::Cow;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use polyshard_engine::RawFrame;
use polyshard_sql::{Param, ParamValue, SqlError, TypeOid};

use super::{Backend, Broken};
use crate::type_ids::{
    ColumnIds, RowPatch, ShardIds, Way, has_user_id, is_record, is_user_id, patch_bind, patch_value,
};

/// What is to be done with the rows of a portal.
pub(super) enum Rows {
    /// They go as they come.
    AsTheyAre,
    /// Ids in them are changed.
    Patched(Arc<RowPatch>),
    /// As the columns say that were told last.
    AsDescribed,
}

/// A message's type and length.
const HEAD_BYTES: usize = 5;

impl Backend {
    /// Whether the shard's ids are those that clients see.
    pub fn is_home(&self) -> bool {
        self.type_ids.is_home(&self.shard)
    }

    async fn ids(&self, way: Way, wanted: &[u32]) -> Result<Option<Arc<ShardIds>>, SqlError> {
        self.type_ids.of_shard(&self.shard, way, wanted).await
    }

    /// Puts the clients' ids into a RowDescription's body. What is to be done with the rows that follow.
    pub async fn translate_columns(&self, body: &mut [u8]) -> Result<Option<Arc<RowPatch>>, SqlError> {
        let Some(found) = ColumnIds::read(body).filter(|found| !found.are_plain()) else { return Ok(None) };
        let wanted = found.wanted(body);
        let Some(ids) = self.ids(Way::Out, &wanted).await? else { return Ok(None) };
        self.type_ids.learn_tables(&self.shard, &ids, &found.tables).await?;
        Ok(found.patch(body, &ids))
    }

    /// Likewise, where the message waits to be passed on.
    pub(super) async fn translate_waiting_columns(&mut self, frame: RawFrame) -> Result<(), Broken> {
        let mut body = BytesMut::from(&self.lent().incoming()[HEAD_BYTES..frame.bytes]);
        self.row_patch = self.translate_columns(&mut body).await.map_err(Broken::Ended)?;
        self.lent().incoming()[HEAD_BYTES..frame.bytes].copy_from_slice(&body);
        Ok(())
    }

    /// Puts the clients' ids into what a shard says of a prepared statement.
    pub(super) async fn translate_description(
        &self,
        parameters: Bytes,
        row: Bytes,
    ) -> Result<(Bytes, Bytes), SqlError> {
        if self.is_home() {
            return Ok((parameters, row));
        }
        let (mut parameters, mut row) = (BytesMut::from(&parameters[..]), BytesMut::from(&row[..]));
        if row.first() == Some(&b'T') {
            self.translate_columns(&mut row[HEAD_BYTES..]).await?;
        }
        let types: Vec<u32> = parameters.get(HEAD_BYTES + 2..).map(read_ids).unwrap_or_default();
        if has_user_id(types.iter().copied())
            && let Some(ids) = self.ids(Way::Out, &types).await?
        {
            for (place, id) in parameters[HEAD_BYTES + 2..].chunks_exact_mut(4).zip(types) {
                place.copy_from_slice(&ids.other(Way::Out, id).to_be_bytes());
            }
        }
        Ok((parameters.freeze(), row.freeze()))
    }

    /// A type as the client is to know it, which this shard knows so.
    pub async fn type_for_client(&self, id: u32) -> Result<u32, SqlError> {
        if !is_user_id(id) {
            return Ok(id);
        }
        Ok(self.ids(Way::Out, &[id]).await?.map_or(id, |ids| ids.other(Way::Out, id)))
    }

    /// Types as this shard knows them, which the client gave.
    pub async fn types_here<'t>(&self, types: &'t [u32]) -> Result<Cow<'t, [u32]>, SqlError> {
        if !types.iter().any(|id| is_user_id(*id)) {
            return Ok(Cow::Borrowed(types));
        }
        Ok(match self.ids(Way::In, types).await? {
            None => Cow::Borrowed(types),
            Some(ids) => types.iter().map(|id| ids.other(Way::In, *id)).collect::<Vec<_>>().into(),
        })
    }

    /// Has values bound to a prepared statement, which was told to have these parameters and columns: as
    /// [`Backend::prepare`] and [`Backend::bind`] do, with the shard's own ids.
    pub async fn bind_translated(&mut self, bound: Translated<'_>) -> Result<(), SqlError> {
        let Translated { portal, id, text, types, parameters, row_message, rest, results } = bound;
        let columns = row_message.get(HEAD_BYTES..).and_then(ColumnIds::read).unwrap_or_default();
        let parameters: Vec<u32> = parameters.iter().map(|type_oid| type_oid.0).collect();
        let is_binary = |at: usize| match results {
            [] => false,
            [one] => *one,
            each => each.get(at).copied().unwrap_or(false),
        };
        let read = columns.types.iter().enumerate();
        let read = read.filter(|(at, id)| !is_record(**id) || is_binary(*at)).map(|(_, id)| id);
        let wanted: Vec<u32> = parameters.iter().chain(types).chain(read).copied().collect();
        let Some(ids) = self.ids(Way::In, &wanted).await? else {
            self.prepare(id, text, types);
            self.bind(portal, id, rest);
            return Ok(());
        };
        let here: Vec<u32> = types.iter().map(|id| ids.other(Way::In, *id)).collect();
        let mut rest = rest.to_vec();
        patch_bind(&mut rest, &parameters, &ids);
        self.prepare(id, text, &here);
        self.bind(portal, id, &rest);
        let columns: Vec<u32> = columns.types.iter().map(|id| ids.other(Way::In, *id)).collect();
        if let Some(patch) = RowPatch::new(&columns, is_binary, &ids) {
            self.portal_patches.push((portal.into(), patch));
        }
        Ok(())
    }

    /// What is to be done with the rows of a portal.
    pub(super) fn rows_of(&self, portal: &str) -> Rows {
        let known = self.portal_patches.iter().rev().find(|(name, _)| **name == *portal);
        known.map_or(Rows::AsTheyAre, |(_, patch)| Rows::Patched(patch.clone()))
    }

    /// Values with this shard's own ids.
    pub async fn params_here(&self, params: &[Param<'_>]) -> Result<Option<Vec<OwnParam>>, SqlError> {
        if !has_user_id(params.iter().map(|param| param.type_oid.0)) {
            return Ok(None);
        }
        let types: Vec<u32> = params.iter().map(|param| param.type_oid.0).collect();
        let Some(ids) = self.ids(Way::In, &types).await? else { return Ok(None) };
        let own = |param: &Param<'_>| {
            let type_oid = TypeOid(ids.other(Way::In, param.type_oid.0));
            let value = match param.value {
                ParamValue::Binary(bytes) => {
                    let mut bytes = bytes.to_vec();
                    patch_value(&mut bytes, param.type_oid.0, &ids, Way::In);
                    Some((true, bytes))
                }
                ParamValue::Text(bytes) => Some((false, bytes.to_vec())),
                ParamValue::Null => None,
            };
            OwnParam { type_oid, value }
        };
        Ok(Some(params.iter().map(own).collect()))
    }
}

/// A portal to be bound.
pub(crate) struct Translated<'b> {
    pub portal: &'b str,
    pub id: u64,
    pub text: &'b str,
    /// The types that the client gave.
    pub types: &'b [u32],
    /// All parameters' types, as clients know them.
    pub parameters: &'b [TypeOid],
    /// The columns, as clients know them.
    pub row_message: &'b [u8],
    /// What follows the names in the client's message.
    pub rest: &'b [u8],
    /// The forms asked for results.
    pub results: &'b [bool],
}

/// A parameter with bytes of its own.
pub(crate) struct OwnParam {
    type_oid: TypeOid,
    value: Option<(bool, Vec<u8>)>,
}

impl OwnParam {
    pub fn param(&self) -> Param<'_> {
        let value = match &self.value {
            None => ParamValue::Null,
            Some((true, bytes)) => ParamValue::Binary(bytes),
            Some((false, bytes)) => ParamValue::Text(bytes),
        };
        Param { type_oid: self.type_oid, value }
    }
}

fn read_ids(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(|id| u32::from_be_bytes([id[0], id[1], id[2], id[3]])).collect()
}
