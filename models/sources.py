"""Finds the files of a model from the source named in its options."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import NoReturn

from pipeline.errors import StageError

FORMS = "package:<name>/<path>, hub:<org>/<name>[@<revision>][/<file>], or the path of a file or folder"


@dataclass(frozen=True, slots=True)
class HubSource:
    """A repository of the Hugging Face hub, or one `file` of it. A revision holds no slash: a tag, branch or commit."""

    repository: str
    revision: str | None
    file: str | None


def resolve(source: str, patterns: Sequence[str] = ()) -> Path:
    """The file or folder that `source` names.

    `package:<name>/<path>` lies in an installed package, named as distribution or as import, which is never imported.
    `hub:<org>/<name>[@<revision>][/<file>]` is taken from the local hub cache, else downloaded into it; `patterns`
    then limit the files of a whole repository. Anything else is a path, `~` expanded. Raises `StageError`.
    """
    scheme, colon, rest = source.partition(":")
    if colon and scheme == "package":
        return _in_package(source, rest)
    if colon and scheme == "hub":
        return _from_hub(source, parse_hub(rest), patterns)
    path = Path(source).expanduser()
    if not source or not path.exists():
        raise StageError(f"model source {source!r}: no such file or folder; expected {FORMS}")
    return path


# ---- installed packages -------------------------------------------------------------------------------------------


def _in_package(source: str, rest: str) -> Path:
    name, _, relative = rest.partition("/")
    parts = PurePosixPath(relative).parts
    if not name or ".." in parts or PurePosixPath(relative).is_absolute():
        raise StageError(f"model source {source!r}: expected package:<name>/<path inside the package>")
    roots = list(_package_roots(name))
    if not roots:
        raise StageError(
            f"model source {source!r}: the package {name!r} is not installed; install it (pip install {name})"
        )
    for root in roots:
        found = root.joinpath(*parts)
        if found.exists():
            return found
    raise StageError(
        f"model source {source!r}: the installed package {name!r} has no {relative!r}; "
        f"looked in {', '.join(map(str, roots))}; install the version that has it, or name another source"
    )


def _package_roots(name: str) -> Iterator[Path]:
    """Where the files of a package lie: of the import name itself, then of what the distribution of that name brings.

    Only top-level names are looked up, since finding a submodule would import its parent.
    """
    imports = [name.replace("-", "_")] if "." not in name else []
    try:
        brought = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        brought = None
    if brought is not None:
        tops = {file.parts[0] for file in brought.files or () if len(file.parts) > 1}
        imports += sorted(top for top in tops if top.isidentifier() and top not in imports)
    for top in imports:
        spec = importlib.util.find_spec(top)
        if spec is not None and spec.submodule_search_locations is not None:
            yield from map(Path, spec.submodule_search_locations)


# ---- the hub ------------------------------------------------------------------------------------------------------


def parse_hub(rest: str) -> HubSource:
    """Read `<org>/<name>[@<revision>][/<file>]`. Raises `StageError`."""
    org, _, tail = rest.partition("/")
    head, _, file = tail.partition("/")
    name, at, revision = head.partition("@")
    if not org or not name or (at and not revision):
        raise StageError(f"model source 'hub:{rest}': expected hub:<org>/<name>[@<revision>][/<file>]")
    return HubSource(f"{org}/{name}", revision or None, file or None)


def _from_hub(source: str, wanted: HubSource, patterns: Sequence[str]) -> Path:
    try:
        from huggingface_hub.errors import HFValidationError, IncompleteSnapshotError, LocalEntryNotFoundError
    except ImportError as error:
        raise StageError(
            f"model source {source!r} needs the library huggingface_hub: pip install -e '.[cpu]' where the project is"
        ) from error
    try:
        return _cached_or_fetched(wanted, patterns, cached=True)
    except IncompleteSnapshotError:
        pass  # an interrupted download: fetch the rest
    except LocalEntryNotFoundError:
        pass  # nothing here yet
    except HFValidationError as error:
        raise StageError(f"model source {source!r}: {error}") from error
    try:
        return _cached_or_fetched(wanted, patterns, cached=False)
    except Exception as error:  # the hub's client raises its own, its HTTP library's and the system's errors
        _explain(source, wanted, error)


def _cached_or_fetched(wanted: HubSource, patterns: Sequence[str], *, cached: bool) -> Path:
    from huggingface_hub import hf_hub_download, snapshot_download

    if wanted.file is not None:
        return Path(hf_hub_download(wanted.repository, wanted.file, revision=wanted.revision, local_files_only=cached))
    return Path(
        snapshot_download(
            wanted.repository,
            revision=wanted.revision,
            local_files_only=cached,
            allow_patterns=list(patterns) or None,
        )
    )


def _explain(source: str, wanted: HubSource, error: Exception) -> NoReturn:
    from huggingface_hub import errors

    revision = wanted.revision or "the default revision"
    match error:
        case errors.GatedRepoError():
            why = "its owner asks for an agreement: accept it on the hub's page, then set HF_TOKEN"
        case errors.RepositoryNotFoundError():
            why = f"the hub knows no repository {wanted.repository!r}, or it is private: check the name, set HF_TOKEN"
        case errors.RevisionNotFoundError():
            why = f"the repository has no revision {wanted.revision!r}"
        case errors.LocalEntryNotFoundError() | errors.OfflineModeIsEnabled():
            why = (
                f"{revision} is not in the local cache and the hub can't be reached: connect (unset HF_HUB_OFFLINE), "
                f"copy it into the cache (HF_HUB_CACHE), or name a local folder"
            )
        case errors.EntryNotFoundError():
            why = f"{revision} has no file {wanted.file!r}"
        case _:
            why = f"the download failed ({type(error).__name__}: {error})"
    raise StageError(f"model source {source!r}: {why}") from error
