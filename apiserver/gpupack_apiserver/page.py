# SPDX-License-Identifier: Apache-2.0
"""The dashboard's files, as `apiserver/dashboard/` builds them, without data of the cluster.

Assets have their content's hash in their names, so that browsers cache them; the page that names
them is requested each time.
"""

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Annotated, Final

import msgspec
from litestar import HttpMethod, Response, route
from litestar.datastructures import State
from litestar.params import PathParameter

from gpupack_apiserver.errors import Missing, PageInvalid
from gpupack_apiserver.routes.events import NOT_COMPRESSED
from gpupack_apiserver.routes.parts import Call

INDEX: Final = "index.html"
ASSETS: Final = "assets"

TYPES: Final = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}

ENCODINGS: Final = {"br": ".br", "gzip": ".gz"}
"""Encodings, best first."""

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
"""Scripts and styles are only the page's own files, and no string becomes either.

The page sends requests only to this server.
"""

HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "Vary": "Accept-Encoding",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}

NO_PAGE: Final = (
    "this server has no dashboard; set GPUPACK_PAGE_FOLDER to the folder of a built one "
    "(`make dashboard` builds dashboard/dist)"
)

IMMUTABLE: Final = "public, max-age=31536000, immutable"
NO_STORE: Final = "no-store"

METHODS: Final = (HttpMethod.GET, HttpMethod.HEAD)
OPTIONS: Final = {NOT_COMPRESSED: True}

FileName = Annotated[str, PathParameter(description="A file's name.", max_length=128)]


class File(msgspec.Struct, frozen=True):
    """One file, unencoded ("") and in its available encodings."""

    media_type: str
    cached: str
    bodies: Mapping[str, bytes]


@dataclasses.dataclass(frozen=True, slots=True)
class Page:
    """All files, by their names in requests."""

    files: Mapping[str, File] = dataclasses.field(default_factory=dict)

    @classmethod
    def read(cls, folder: str) -> "Page":
        """Read a built page once; without a folder there is none.

        Raises:
            PageInvalid: there is no page in the folder.
        """
        if not folder:
            return cls()
        root = pathlib.Path(folder)
        try:
            paths = [root / INDEX, *sorted((root / ASSETS).iterdir())]
            known = [path for path in paths if path.suffix in TYPES]
            files = {str(path.relative_to(root)): _file(path) for path in known}
        except OSError as error:
            raise PageInvalid(
                f"{folder} holds no page: {error}; build it in apiserver/dashboard/"
            ) from error
        return cls(files)

    def answer(self, name: str, accepted: str) -> Response[bytes]:
        """Return a file, in the best encoding that the caller accepts.

        Raises:
            Missing: there is no such file.
        """
        found = self.files.get(name)
        if found is None:
            raise Missing("there is no such file" if self.files else NO_PAGE)
        encoding = next(
            (each for each in _accepted_encodings(accepted) if each in found.bodies), ""
        )
        headers = HEADERS | {"Cache-Control": found.cached}
        if encoding:
            headers |= {"Content-Encoding": encoding}
        return Response(found.bodies[encoding], media_type=found.media_type, headers=headers)


@route("/", http_method=METHODS, include_in_schema=False, opt=OPTIONS)
async def index(request: Call, state: State) -> Response[bytes]:
    """Send the page."""
    return page_of(state).answer(INDEX, _accepted(request))


@route(f"/{ASSETS}/{{name:str}}", http_method=METHODS, include_in_schema=False, opt=OPTIONS)
async def asset(request: Call, state: State, name: FileName) -> Response[bytes]:
    """Send a file that the page names."""
    return page_of(state).answer(f"{ASSETS}/{name}", _accepted(request))


def page_of(state: State) -> Page:
    """Return the page that the application was built with."""
    found: Page = state["page"]
    return found


def _accepted(request: Call) -> str:
    return request.headers.get("accept-encoding", "")


def _file(path: pathlib.Path) -> File:
    variants = {name: path.with_name(path.name + ending) for name, ending in ENCODINGS.items()}
    encoded = {name: each.read_bytes() for name, each in variants.items() if each.is_file()}
    cached = NO_STORE if path.name == INDEX else IMMUTABLE
    return File(TYPES[path.suffix], cached, {"": path.read_bytes(), **encoded})


def _accepted_encodings(accepted: str) -> list[str]:
    """Return the accepted encodings of an Accept-Encoding; q=0 excludes one."""
    parts = [part.strip().lower().partition(";") for part in accepted.split(",")]
    named = {name.strip() for name, _, weight in parts if weight.strip() not in {"q=0", "q=0.0"}}
    return [each for each in ENCODINGS if each in named]
