# ruff: noqa: INP001, TID251  # a program of its own, which reads the environment
"""A web back end whose signed-in users each have conversations of their own.

    THROUGHLINE_KEY=… .venv/bin/python docs/examples/web_backend.py

It listens on port 9000. The key has the scopes `read`, `write` and `act_as`, and never leaves this program.
`On-Behalf-Of` names the user of a request, so that nobody reaches what belongs to somebody else.
"""

import os
import secrets
from collections.abc import AsyncIterator
from typing import Annotated, Any, TypeAlias
from urllib.parse import quote
from uuid import UUID

import httpx
import uvicorn
from fastapi import Depends, FastAPI, HTTPException, status
from fastapi.security import HTTPBasic, HTTPBasicCredentials
from pydantic import BaseModel, Field

PASSWORDS = {"anna": "red", "berta": "blue"}
"""Stands for the sign-in of your application."""

SERVICE = os.environ.get("THROUGHLINE_URL", "http://127.0.0.1:8000")
KEY = os.environ["THROUGHLINE_KEY"]

app = FastAPI()
JsonObject: TypeAlias = dict[str, Any]


class Question(BaseModel):
    """A message of a user about an order. `id` is made by the page, so that a repeated request asks once."""

    id: str = Field(pattern=r"^[!-~]{1,100}$")
    text: str


def signed_in(given: Annotated[HTTPBasicCredentials, Depends(HTTPBasic())]) -> str:
    """Return the name of the user. Raises HTTPException (401) for an unknown name or a wrong password."""
    expected = PASSWORDS.get(given.username)
    is_right = secrets.compare_digest((expected or "?").encode(), given.password.encode())
    if expected is None or not is_right:
        raise HTTPException(status.HTTP_401_UNAUTHORIZED, headers={"WWW-Authenticate": "Basic"})
    return given.username


async def service_for(user: Annotated[str, Depends(signed_in)]) -> AsyncIterator[httpx.AsyncClient]:
    """Yield a client of the service that acts for the user, and for nobody else.

    Raises HTTPException (503) while the service does not answer.
    """
    headers = {"Authorization": f"Bearer {KEY}", "On-Behalf-Of": user, "X-Client": "web"}
    async with httpx.AsyncClient(base_url=SERVICE, headers=headers, timeout=330) as client:
        try:
            yield client
        except httpx.TransportError as error:
            raise HTTPException(
                status.HTTP_503_SERVICE_UNAVAILABLE, "The assistant is away. Try again soon.", {"Retry-After": "5"}
            ) from error


Service = Annotated[httpx.AsyncClient, Depends(service_for)]


def body_of(response: httpx.Response) -> JsonObject:
    """Return the body of an answer. Raises HTTPException with the status and the detail of a problem document."""
    if response.is_error:
        raise HTTPException(response.status_code, response.json()["detail"])
    found: JsonObject = response.json()
    return found


@app.post("/orders/{order}/messages")
async def ask(order: str, question: Question, service: Service) -> dict[str, str]:
    """Answer a message in the user's conversation about an order, which is opened by the first one."""
    session = body_of(await service.post("/v1/sessions", json={"agent": "support", "external_id": f"order-{order}"}))
    url, key = f"/v1/sessions/{session['id']}/messages", f"{session['id']}:{question.id}"
    answer = body_of(await service.post(url, json={"content": question.text}, headers={"Idempotency-Key": key}))
    return {"session": session["id"], "answer": answer["message"]["content"]}


@app.get("/conversations/{session}")
async def read(session: UUID, service: Service) -> JsonObject:
    """Return the messages of a conversation; 404 if it is not the user's."""
    return body_of(await service.get(f"/v1/sessions/{session}/messages"))


@app.post("/conversations/{session}/token")
async def make_token(session: UUID, service: Service) -> JsonObject:
    """Return a token with which the user's page may read and write this conversation for 15 minutes."""
    return body_of(await service.post("/v1/tokens", json={"session_ids": [str(session)]}))


@app.delete("/account")
async def erase(user: Annotated[str, Depends(signed_in)], service: Service) -> JsonObject:
    """Erase everything of the user; return what went."""
    return body_of(await service.delete(f"/v1/users/{quote(user, safe='')}"))


if __name__ == "__main__":
    uvicorn.run(app, port=int(os.environ.get("BACKEND_PORT", "9000")))
