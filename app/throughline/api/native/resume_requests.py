"""Body of a request that resumes a waiting run: what its calls are given from outside."""

import json
from typing import Annotated, Literal

from pydantic import BaseModel, Field, JsonValue, model_validator

from throughline.api.native.requests import STRICT
from throughline.domain.waiting import MAX_OUTPUT, MAX_REASON, Decision, Resolution

MAX_CALLS = 128


class CallResolution(BaseModel):
    """What one waiting call is given: `output` for a result or an answer, `decision` for an approval."""

    model_config = STRICT

    call_id: str = Field(min_length=1, max_length=200)
    output: Annotated[str, Field(max_length=MAX_OUTPUT)] | None = Field(
        None, description="the result of a client's tool, or the answer to a question"
    )
    is_error: bool = Field(default=False, description="the client's tool failed; `output` says why")
    decision: Literal["approve", "edit", "reject"] | None = Field(None, description="whether the call may be run")
    arguments: dict[str, JsonValue] | None = Field(None, description="with `edit`: the arguments to run the call with")
    reason: str = Field("", max_length=MAX_REASON, description="with `reject`: what the model is told")

    @model_validator(mode="after")
    def _check_one_thing_is_given(self) -> "CallResolution":
        if (self.output is None) is (self.decision is None):
            raise ValueError("needs `output` or `decision`, and not both")
        if (self.decision == "edit") is not (self.arguments is not None):
            raise ValueError("needs `arguments` with the decision `edit`, and only with it")
        if self.is_error and self.output is None:
            raise ValueError("has `is_error` without `output`")
        if self.reason and self.decision != "reject":
            raise ValueError("has a `reason` without the decision `reject`")
        return self

    def read(self, author: str | None) -> Resolution:
        """Return the resolution as a domain value, given by `author`."""
        arguments = None if self.arguments is None else json.dumps(self.arguments, ensure_ascii=False)
        decision = None if self.decision is None else Decision(self.decision)
        text = self.reason if self.output is None else self.output
        return Resolution(self.call_id, text, self.is_error, decision, arguments, author)


class ResumeRun(BaseModel):
    """What the calls of a waiting run are given. The run goes on once none of its calls waits any more."""

    model_config = STRICT

    calls: list[CallResolution] = Field(min_length=1, max_length=MAX_CALLS)
