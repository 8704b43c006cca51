"""Wheels that hold pieces of a model, and pages that link to them as an index does."""

import hashlib
import io
import json
import zipfile


def wheel(members: dict[str, bytes]) -> bytes:
    """A wheel with these members; it would delete nothing and print nothing, were it ever run."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("part/__init__.py", "raise SystemExit('nothing in a wheel is ever run')")
        for name, data in members.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def file_name(project: str, version: str = "1.0") -> str:
    return f"{project.replace('-', '_')}-{version}-py3-none-any.whl"


def json_page(wheels: dict[str, tuple[str, bytes]], **extra) -> str:
    """`wheels`: file name -> (address, bytes)."""
    files = [
        {
            "filename": name,
            "url": url,
            "hashes": {"sha256": hashlib.sha256(data).hexdigest()},
            "size": len(data),
            **extra,
        }
        for name, (url, data) in wheels.items()
    ]
    return json.dumps({"meta": {"api-version": "1.1"}, "files": files})


def html_page(wheels: dict[str, tuple[str, bytes]]) -> str:
    links = "".join(
        f'<a href="{url}#sha256={hashlib.sha256(data).hexdigest()}">{name}</a><br/>'
        for name, (url, data) in wheels.items()
    )
    return f"<!DOCTYPE html><html><body>{links}</body></html>"


JSON = "application/vnd.pypi.simple.v1+json"


def publish(web, project: str, version: str, members: dict[str, bytes], *, html=False) -> bytes:
    """Put a wheel and its index page on the fake web; the wheel."""
    data, name = wheel(members), file_name(project, version)
    web.add(f"/files/{name}", data)
    page = {name: (f"../../files/{name}", data)}
    if html:
        web.add(f"/simple/{project}/", html_page(page), kind="text/html")
    else:
        web.add(f"/simple/{project}/", json_page(page), kind=JSON)
    return data
