"""
Letting in, by a form, who knows the token; and out again.
"""

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from jobstore.web.forms import Forms
from jobstore.web.guards import SESSION_COOKIE, SESSION_SECONDS, Token
from jobstore.web.render import Renderer

__all__ = ["Login"]


class Login:
    """
    The login form, and the way out.
    """

    def __init__(self, token: Token, forms: Forms, renderer: Renderer) -> None:
        self._token = token
        self._forms = forms
        self._renderer = renderer

    def routes(self) -> list[Route]:
        return [
            Route("/login", self.ask, methods=["GET"]),
            Route("/login", self.answer, methods=["POST"]),
            Route("/logout", self.leave, methods=["POST"]),
        ]

    def ask(self, request: Request) -> Response:
        return self._form(request, is_refused=False)

    async def answer(self, request: Request) -> Response:
        form = await self._forms.read(request, "login")
        if not self._token.matches(form.get("token", "").strip()):
            return self._form(request, is_refused=True)
        response = self._to(request, "/")
        response.set_cookie(
            SESSION_COOKIE,
            self._token.new_session(),
            max_age=SESSION_SECONDS,
            path=_path(request),
            httponly=True,
            samesite="strict",
            # What the browser calls its page tells whether TLS is in front of us.
            secure=request.headers.get("origin", "").startswith("https:"),
        )
        return response

    async def leave(self, request: Request) -> Response:
        # No seal: to be logged out by somebody else's page does no harm, and the
        # cookie, being strict, does not come along from one.
        response = self._to(request, "/login")
        response.delete_cookie(SESSION_COOKIE, path=_path(request))
        return response

    def _form(self, request: Request, *, is_refused: bool) -> Response:
        visit = self._forms.visit(request)
        response = self._renderer.page(
            request,
            "login.html",
            status=403 if is_refused else 200,
            here="login",
            is_refused=is_refused,
            seal=self._forms.seal(visit, "login"),
        )
        self._forms.remember(response, visit, path=_path(request))
        return response

    def _to(self, request: Request, path: str) -> Response:
        return RedirectResponse(f"{request.scope.get('root_path', '')}{path}", 303)


def _path(request: Request) -> str:
    return request.scope.get("root_path", "") or "/"
