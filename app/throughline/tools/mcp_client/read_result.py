"""Results of a server's tools as the model gets them: text, and images if the agent takes them."""

import base64
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


def read_result(result: CallToolResult, *, takes_images: bool) -> tuple[str, tuple[ImageBlock, ...]]:
    """Return the result as text, and the images that stand beside it: of those that providers take, MAX_IMAGES.

    The text has the other blocks, one below the other; the structured content as JSON if they have none.
    """
    texts: list[str] = []
    images: list[ImageBlock] = []
    for block in result.content:
        if takes_images and len(images) < MAX_IMAGES and isinstance(block, ImageContent) and _is_shown(block):
            images.append(ImageBlock(f"data:{block.mime_type};base64,{block.data}"))
        else:
            texts.append(_text_of_block(block))
    text = "\n".join(texts)
    if not text.strip() and result.structured_content is not None:
        text = json.dumps(result.structured_content, ensure_ascii=False)
    return text, tuple(images)


def _is_shown(image: ImageContent) -> bool:
    """Return whether providers take the image: its type, its size, complete base64, and the beginning of its bytes."""
    if image.mime_type not in BEGINNINGS or len(image.data) > MAX_IMAGE_CHARACTERS:
        return False
    try:
        return base64.b64decode(image.data, validate=True).startswith(BEGINNINGS[image.mime_type])
    except ValueError:
        return False


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
