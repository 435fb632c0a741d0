"""Problems with the request itself: its form, its key, its address and its values."""

from collections.abc import Mapping

from throughline.api.http.problem_kinds.kind import ProblemKind

REQUEST_KINDS: Mapping[str, ProblemKind] = {
    "malformed_body": ProblemKind(
        400,
        "The body is not JSON",
        cause="The body is not JSON in UTF-8, or it is nested too deeply.",
        remedy="Send a JSON object.",
    ),
    "malformed_request": ProblemKind(
        400,
        "The request is not HTTP",
        cause="The bytes that arrived are no HTTP request.",
        remedy="Correct the client.",
    ),
    "not_authenticated": ProblemKind(
        401,
        "A valid key is required",
        cause="The key is absent, unknown or revoked, or an access token has expired.",
        remedy="Send a valid key or a new access token.",
        page="operations/keys-and-users.md",
    ),
    "not_allowed": ProblemKind(
        403,
        "The key lacks the required scope",
        cause="The key lacks the scope, or an access token does not serve this route.",
        remedy="Create a key with that scope, or call the route with a key.",
        page="operations/keys-and-users.md#scopes",
    ),
    "origin_refused": ProblemKind(
        403,
        "Requests of this origin are not served",
        cause="The origin of the page is not listed. Or no API key exists: then only this machine is served.",
        remedy="Add the origin to `CORS_ORIGINS`. Or call the service as `localhost`, or create a key.",
        page="guides/browsers.md",
    ),
    "not_found": ProblemKind(
        404,
        "Not found",
        cause="The object does not exist or belongs to somebody else. Or the session's agent was removed.",
        remedy="Check the id, and that the key is its owner's.",
    ),
    "model_not_found": ProblemKind(
        404,
        "No such model",
        cause="No agent has the name that a request in OpenAI's form gives as `model`.",
        remedy="Take a name that `GET /v1/models` lists.",
        page="guides/openai.md",
    ),
    "previous_response_not_found": ProblemKind(
        404,
        "No such response to continue",
        cause="The response to continue is missing, deleted or was not stored.",
        remedy="Send the conversation itself as `input`.",
        page="guides/openai.md",
    ),
    "route_not_found": ProblemKind(
        404,
        "No such route",
        cause="There is no such route.",
        remedy="Take a route that `/openapi.json` lists.",
    ),
    "method_not_allowed": ProblemKind(
        405,
        "Method not allowed",
        cause="The route has other methods.",
        remedy="Use a method that the header `Allow` names.",
    ),
    "body_too_slow": ProblemKind(
        408,
        "The body did not arrive in time",
        cause="The body did not arrive within 30 seconds.",
        remedy="Send the request again.",
    ),
    "head_too_slow": ProblemKind(
        408,
        "The request did not arrive in time",
        cause="The request's head did not arrive within 15 seconds.",
        remedy="Send the request again.",
    ),
    "body_too_large": ProblemKind(
        413,
        "The body is too large",
        cause="The body is larger than `MAX_BODY_BYTES`, or an import is larger than `MAX_IMPORT_BYTES`.",
        remedy="Send less at a time, or raise the setting.",
        page="reference/limits.md#large-bodies",
    ),
    "unsupported_media_type": ProblemKind(
        415,
        "The body must be plain JSON",
        cause="The body has another content type, is compressed, or is not in UTF-8.",
        remedy="Send `Content-Type: application/json` in UTF-8, not compressed.",
    ),
    "invalid_input": ProblemKind(
        422,
        "The request is not valid",
        cause="A value is not acceptable. `errors` names each field.",
        remedy="Correct the named fields.",
    ),
    "head_too_large": ProblemKind(
        431,
        "The request's headers are too large",
        cause="The head or the trailers have more than 64 kB or 256 headers.",
        remedy="Send fewer or shorter headers.",
        page="reference/limits.md#connections",
    ),
}
