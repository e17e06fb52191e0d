"""
Forms: reading one, and knowing that we wrote it.
"""

import hmac
import secrets
from urllib.parse import parse_qs

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from jobstore.web.guards import cookie, is_same_origin

__all__ = ["Forms"]

VISIT_COOKIE = "jobstore_visit"
LARGEST_FORM = 64 * 1024
_TYPE = "application/x-www-form-urlencoded"


class Forms:
    """
    Writes a seal into each form, for one browser and one purpose, and checks it.

    The seal is signed with a key of this process: after a restart open forms are
    refused, and loaded again.
    """

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)

    def visit(self, request: Request) -> str:
        """
        Return the mark of the browser, a new one if it has none yet.
        """
        found = cookie(request, VISIT_COOKIE)
        return found if len(found) == 32 else secrets.token_hex(16)

    def remember(self, response: Response, visit: str, *, path: str) -> None:
        response.set_cookie(
            VISIT_COOKIE, visit, path=path, httponly=True, samesite="strict"
        )

    def seal(self, visit: str, purpose: str) -> str:
        text = f"{visit} {purpose}".encode(errors="replace")
        return hmac.digest(self._key, text, "sha256").hex()

    async def read(self, request: Request, purpose: str) -> dict[str, str]:
        """
        Return the fields of a form of ours, the first value of each.

        Raises:
            HTTPException: 403 if it is not ours, from elsewhere, or too old; 413 or
                415 if it is no such form.
        """
        if not is_same_origin(request):
            raise HTTPException(403, "This form was not sent from a page of ours.")
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != _TYPE:
            raise HTTPException(415, "Forms are sent url-encoded.")
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > LARGEST_FORM:
                raise HTTPException(413, "The form is too large.")
        try:
            fields = parse_qs(bytes(body).decode(), max_num_fields=20)
        except ValueError:
            raise HTTPException(400, "The form can't be read.") from None
        form = {name: values[0] for name, values in fields.items()}
        expected = self.seal(cookie(request, VISIT_COOKIE), purpose)
        given = form.get("seal", "")
        if not hmac.compare_digest(given.encode(errors="replace"), expected.encode()):
            raise HTTPException(403, "This form is too old. Go back and load it again.")
        return form
