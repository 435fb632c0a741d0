"""Results of a server's tools as the model gets them: text, and images if the agent takes them."""

import base64
import itertools
import json

from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

from throughline.domain.message import ImageBlock

BEGINNINGS = {
    "image/png": b"\x89PNG\r\n\x1a\n",
    "image/jpeg": b"\xff\xd8\xff",
    "image/gif": b"GIF8",
    "image/webp": b"RIFF",
}
"""How the images begin that providers take, by type. One refused image would have every later prompt refused."""

MAX_IMAGES = 4
MAX_IMAGE_CHARACTERS = 1_400_000
"""Longest image in base64: about a megabyte."""

MAX_KIND = 100
KILO = 1_000


def text_of_result(result: CallToolResult, *, with_images: bool = False) -> str:
    """Return the blocks of the result as text, one below the other; the structured content as JSON if there is none.

    `with_images`: images are shown beside the text, so that it has no lines for them.
    """
    shown = _image_blocks(result) if with_images else []
    text = "\n".join(_text_of_block(block) for block in result.content if block not in shown)
    if not text.strip() and result.structured_content is not None:
        return json.dumps(result.structured_content, ensure_ascii=False)
    return text


def _image_blocks(result: CallToolResult) -> list[ContentBlock]:
    found = (block for block in result.content if isinstance(block, ImageContent) and _is_shown(block))
    return list(itertools.islice(found, MAX_IMAGES))


def _is_shown(image: ImageContent) -> bool:
    """Return whether providers take the image: its type, its size, complete base64, and the beginning of its bytes."""
    if image.mime_type not in BEGINNINGS or len(image.data) > MAX_IMAGE_CHARACTERS:
        return False
    try:
        return base64.b64decode(image.data, validate=True).startswith(BEGINNINGS[image.mime_type])
    except ValueError:
        return False


def images_of_result(result: CallToolResult) -> tuple[ImageBlock, ...]:
    """Return the images of the result that providers take, at most MAX_IMAGES."""
    blocks = (block for block in _image_blocks(result) if isinstance(block, ImageContent))
    return tuple(ImageBlock(f"data:{block.mime_type};base64,{block.data}") for block in blocks)


def _text_of_block(block: ContentBlock) -> str:
    match block:
        case TextContent():
            return block.text
        case ImageContent():
            return _placeholder("image", block.mime_type, block.data)
        case AudioContent():
            return _placeholder("audio", block.mime_type, block.data)
        case ResourceLink():
            return str(block.uri)
        case EmbeddedResource():
            return _text_of_resource(block.resource)


def _text_of_resource(resource: TextResourceContents | BlobResourceContents) -> str:
    if isinstance(resource, TextResourceContents):
        return resource.text
    return f"{resource.uri} {_placeholder('file', resource.mime_type or '', resource.blob)}"


def _placeholder(kind: str, mime_type: str, data: str) -> str:
    """Return a line in place of bytes, which are given in base64."""
    size = len(data) * 3 // 4
    shown = f"{size // KILO} kB" if size >= KILO else f"{size} bytes"
    return f"[{kind} {mime_type[:MAX_KIND]}, {shown}]"
