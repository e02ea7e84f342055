//! The blocks and pages that a blob consists of.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use polyshard_azure_storage::Response;
use polyshard_azure_storage::xml::Writer;

use super::{document, state};
use crate::model::{Block, BlockList, BlockListKind, PageRanges};

/// `<BlockList>` with those parts that were asked for.
pub(crate) fn block_list(list: &BlockList, kind: BlockListKind) -> Response {
    let mut xml = Writer::document();
    xml.open("BlockList");
    if kind != BlockListKind::Uncommitted {
        blocks(&mut xml, "CommittedBlocks", &list.committed);
    }
    if kind != BlockListKind::Committed {
        blocks(&mut xml, "UncommittedBlocks", &list.uncommitted);
    }
    xml.close("BlockList");
    let response = document(200, xml.finish());
    match &list.blob {
        Some(blob) => state(response, blob.etag, blob.modified)
            .header("x-ms-blob-content-length", blob.size.to_string()),
        None => response.header("x-ms-blob-content-length", "0"),
    }
}

fn blocks(xml: &mut Writer, name: &str, blocks: &[Block]) {
    if blocks.is_empty() {
        return xml.empty(name);
    }
    xml.open(name);
    for block in blocks {
        xml.open("Block");
        xml.element("Name", &STANDARD.encode(&block.id.0));
        xml.element("Size", &block.size.to_string());
        xml.close("Block");
    }
    xml.close(name);
}

/// `<PageList>`
pub(crate) fn page_list(pages: &PageRanges) -> Response {
    let mut xml = Writer::document();
    xml.open("PageList");
    for range in &pages.ranges {
        let name = if range.is_cleared { "ClearRange" } else { "PageRange" };
        xml.open(name);
        xml.element("Start", &range.first.to_string());
        xml.element("End", &range.last.to_string());
        xml.close(name);
    }
    if let Some(next) = &pages.next {
        xml.element("NextMarker", next);
    }
    xml.close("PageList");
    state(document(200, xml.finish()), pages.blob.etag, pages.blob.modified)
        .header("x-ms-blob-content-length", pages.blob.size.to_string())
}
