//! Ids of blocks, and the XML that puts blocks together: its order is that of the blob.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use polyshard_azure_storage::{ServiceError, xml};

use crate::model::{BlockId, BlockSource};
use crate::reply::errors;

/// Bytes of an id, before base64: the service's limit.
const ID_BYTES_MAX: usize = 64;
/// Blocks of a blob: the service's limit.
const BLOCKS_MAX: usize = 50_000;

/// Reads an id, which is base64.
pub(super) fn block_id(text: &str) -> Result<BlockId, ServiceError> {
    match STANDARD.decode(text) {
        Ok(bytes) if (1..=ID_BYTES_MAX).contains(&bytes.len()) => Ok(BlockId(bytes)),
        _ => Err(errors::invalid_block_id()),
    }
}

/// `<BlockList><Latest>…</Latest><Committed>…</Committed><Uncommitted>…</Uncommitted></BlockList>`, in any mixture.
pub(super) fn block_list(body: &[u8]) -> Result<Vec<(BlockSource, BlockId)>, ServiceError> {
    let root = xml::parse(body)?;
    if root.name != "BlockList" {
        return Err(ServiceError::invalid_xml("the root element must be BlockList"));
    }
    if root.children.len() > BLOCKS_MAX {
        return Err(errors::block_list_too_long());
    }
    let mut blocks = Vec::with_capacity(root.children.len());
    for element in &root.children {
        let source = match element.name.as_str() {
            "Latest" => BlockSource::Latest,
            "Committed" => BlockSource::Committed,
            "Uncommitted" => BlockSource::Uncommitted,
            _ => return Err(ServiceError::invalid_xml("BlockList holds Latest, Committed and Uncommitted")),
        };
        let id = block_id(element.text.trim()).map_err(|_| errors::invalid_block_list())?;
        blocks.push((source, id));
    }
    Ok(blocks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_the_elements_is_kept() {
        let text = "<?xml version=\"1.0\"?>\n<BlockList>\n <Latest>YQ==</Latest><Committed> Yg== </Committed>\
                    <Latest>Yw==</Latest><Uncommitted>YQ==</Uncommitted></BlockList>";
        let id = |text: &str| BlockId(text.as_bytes().to_vec());
        let expected = [
            (BlockSource::Latest, id("a")),
            (BlockSource::Committed, id("b")),
            (BlockSource::Latest, id("c")),
            (BlockSource::Uncommitted, id("a")),
        ];
        assert_eq!(block_list(text.as_bytes()).unwrap(), expected);
        assert_eq!(block_list(b"<BlockList/>").unwrap(), []);
    }

    #[test]
    fn what_is_no_list_is_refused() {
        let code = |text: &str| block_list(text.as_bytes()).map_err(|error| error.code());
        assert_eq!(code("<Other/>"), Err("InvalidXmlDocument"));
        assert_eq!(code("<BlockList><Newest>YQ==</Newest></BlockList>"), Err("InvalidXmlDocument"));
        assert_eq!(code("<BlockList><Latest>?</Latest></BlockList>"), Err("InvalidBlockList"));
        let many = |count| format!("<BlockList>{}</BlockList>", "<Latest>YQ==</Latest>".repeat(count));
        assert_eq!(code(&many(50_001)), Err("BlockListTooLong"));
        assert_eq!(code(&many(50_000)).unwrap().len(), 50_000);
        for bad in ["", "=", "YQ", "a b", &STANDARD.encode([0; 65])] {
            assert_eq!(block_id(bad).map_err(|error| error.code()), Err("InvalidBlockId"), "{bad}");
        }
        assert!(block_id(&STANDARD.encode([0; 64])).is_ok());
    }
}
