"""Releases of dependencies that have published holes are shut out."""

from __future__ import annotations

import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

FLOORS = {
    "anyio": "4.14.2",  # GHSA-82r6-8w77-94w6: a certificate of another host name passes
    "certifi": "2024.7.4",  # CVE-2024-39689: trusts an authority that was withdrawn
    "h11": "0.16",  # CVE-2025-43859: broken chunks let a response be read as another
    "h2": "4.4.1",  # CVE-2026-71554: a second Host header smuggles a request; before 4.3 CVE-2025-57804: so do line breaks
    "httpcore": "1.0.9",  # the first that goes with h11 0.16
    "idna": "3.15",  # CVE-2026-45409, and before 3.7 CVE-2024-3651: a crafted name takes quadratic time
}
OPTIONAL = {"h2"}
"""Comes with the extra ``http2`` only."""

PROJECT = Path(__file__).parents[1] / "pyproject.toml"


def declared() -> dict[str, Requirement]:
    """What the project asks for when it is installed, and with the extra ``http2``, by name."""
    project = tomllib.loads(PROJECT.read_text())["project"]
    asked = [*project["dependencies"], *project["optional-dependencies"]["http2"]]
    return {canonicalize_name(found.name): found for found in map(Requirement, asked)}


@pytest.mark.parametrize("name", FLOORS)
def test_the_floor_is_declared(name: str) -> None:
    """The project's metadata holds the floor, so that pip cannot choose a release below it."""
    bounds = [Version(bound.version) for bound in declared()[name].specifier if bound.operator == ">="]
    assert max(bounds) >= Version(FLOORS[name])


@pytest.mark.parametrize("name", sorted({*FLOORS, *declared()}))
def test_what_is_installed_is_above_the_floor(name: str) -> None:
    """What is installed here is a release that the project asks for, and not below a floor."""
    try:
        installed = Version(version(name))
    except PackageNotFoundError:
        assert name in OPTIONAL
        pytest.skip("it is not installed")
    assert installed in declared()[name].specifier
    assert installed >= Version(FLOORS.get(name, "0"))
