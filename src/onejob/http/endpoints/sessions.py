"""Console sessions over HTTP: sign in with an API key or token, ask for one's own user and permissions, sign out.

The session is in a cookie that scripts cannot read. A request that a cookie authenticates may change something only if
its Origin is this server and it has the header `X-Onejob-Console`, which a page of another site cannot send without
being asked first. Together with an Origin of another site the cookie does not count at all, whatever CORS allows.
"""

from typing import Annotated

from msgspec import Meta

from onejob.core.credentials import API_KEY_PREFIX, Permission, Role
from onejob.core.timestamps import to_utc
from onejob.errors import NotAllowed
from onejob.http.auth import Authenticate, Authenticator, unauthorized_error
from onejob.http.request import Request
from onejob.http.responses import Header, Response, json_response
from onejob.http.routing import Route
from onejob.http.schemas.types import RequestBody, ResponseBody, UtcTimestamp
from onejob.http.session_cookies import clear_cookie, is_from_own_page, read_cookie, set_cookie

CREDENTIAL_CHARS_MAX = 8192


class SignInBody(RequestBody, frozen=True, rename="camel", forbid_unknown_fields=True):
    credential: Annotated[
        str,
        Meta(
            description="An API key or a token, as it would follow `Authorization: Bearer`.",
            extra_json_schema={"minLength": 1, "maxLength": CREDENTIAL_CHARS_MAX},
        ),
    ]


class SessionOut(ResponseBody, frozen=True, rename="camel"):
    request_id: str
    tenant: str
    user: str
    name: str
    actor: str
    roles: list[Role]
    permissions: list[Permission]
    authentication: bool  # False: this server asks for no credential
    oversees: bool  # False: sees only its own jobs
    expires_at: UtcTimestamp | None  # of the session; null: the request had a credential of its own


class SignedOutOut(ResponseBody, frozen=True, rename="camel"):
    request_id: str


class SessionEndpoints:
    def __init__(self, authenticate: Authenticate) -> None:
        # None: without authentication, or with one of the embedding application.
        self._authenticator = authenticate if isinstance(authenticate, Authenticator) else None

    async def sign_in(self, request: Request) -> Response:
        request.query()
        if self._authenticator is None:
            raise NotAllowed("this server asks for no credential; open the console without signing in")
        if not is_from_own_page(request.scope):
            raise NotAllowed("only the console of this server may sign in; open it there")
        body = await request.decode_body(SignInBody)
        text = body.credential.strip()
        if not text or len(text) > CREDENTIAL_CHARS_MAX or not text.isascii():
            raise unauthorized_error()
        # With the address of the client, for which a failure is counted.
        sent: list[Header] = [header for header in request.headers if header[0] == b"x-forwarded-for"]
        sent.append((b"authorization", b"Bearer " + text.encode()))
        credential = await self._authenticator({**request.scope, "headers": sent})
        sessions = self._authenticator.sessions
        made = await sessions.create(
            credential.caller,
            name=credential.name,
            roles=credential.roles,
            api_key=text if text.startswith(API_KEY_PREFIX) else "",
            valid_until=0 if text.startswith(API_KEY_PREFIX) else self._authenticator.token_expiry_ms(text),
        )
        request.credential = credential
        out = self._session_out(request, made.session.expires_at)
        return json_response(201, out, set_cookie(request.scope, made.text))

    async def get(self, request: Request) -> Response:
        request.query()
        expires_at = 0
        if self._authenticator is not None and (text := read_cookie(request.scope)):
            session = await self._authenticator.sessions.verify(text)
            expires_at = 0 if session is None else session.expires_at
        return json_response(200, self._session_out(request, expires_at))

    async def sign_out(self, request: Request) -> Response:
        request.key()
        request.query()
        await request.require_no_body()
        if self._authenticator is not None and (text := read_cookie(request.scope)):
            await self._authenticator.sessions.end(text)
        return json_response(200, SignedOutOut(request.id), clear_cookie(request.scope))

    def _session_out(self, request: Request, expires_at: int) -> SessionOut:
        credential = request.credential
        return SessionOut(
            request_id=request.id,
            tenant=credential.caller.tenant,
            user=credential.caller.user,
            name=credential.name,
            actor=credential.caller.actor,
            roles=sorted(credential.roles),
            permissions=[permission for permission in Permission if credential.may(permission)],
            authentication=self._authenticator is not None,
            oversees=request.ledger.caller.sees_all_users,
            expires_at=to_utc(expires_at) if expires_at else None,
        )

    def routes(self) -> tuple[Route, ...]:
        return (
            Route(
                "POST",
                "/api/session",
                self.sign_in,
                None,
                "Sign in to the console with an API key or a token; answered with a cookie",
                SignInBody,
                SessionOut,
                201,
                errors=("UNAUTHORIZED", "FORBIDDEN"),
            ),
            Route(
                "GET",
                "/api/session",
                self.get,
                Permission.READ,
                "Who you are here, and what you may do",
                None,
                SessionOut,
            ),
            Route(
                "DELETE",
                "/api/session",
                self.sign_out,
                Permission.READ,
                "Sign out of the console",
                None,
                SignedOutOut,
                takes_key=True,
            ),
        )
