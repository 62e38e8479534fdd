"""Provenance of records: processor, versions, and state of the code."""

import hashlib
import os
import platform
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from optim.core.optional import installed_version

PACKAGE_FOLDER = Path(__file__).resolve().parent.parent
GIT_TIMEOUT_S = 5.0

VERSIONED_PACKAGES = ("mlcluster-optim", "numpy", "highspy", "numba")
"""Packages whose versions every solution records."""


def package_versions() -> Mapping[str, str]:
    """Return the package versions needed to reproduce a record."""
    versions = {name: installed_version(name) or "not installed" for name in VERSIONED_PACKAGES}
    return {"python": platform.python_version(), **versions}


@cache
def machine_facts() -> Mapping[str, str | int]:
    """Return the properties of this machine on which run times depend: processor, usable cores, system, Python."""
    return {
        "cpu": cpu_name(),
        "cpu_count": os.cpu_count() or 1,
        "cpus_usable": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }


@cache
def code_digest() -> str:
    """Return a digest of the package's sources, which distinguishes results of different code."""
    digest = hashlib.sha256()
    for path in sorted(PACKAGE_FOLDER.rglob("*.py")):
        digest.update(str(path.relative_to(PACKAGE_FOLDER)).encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


@cache
def commit() -> str | None:
    """Return the commit of the package's git checkout, None outside a checkout."""
    root = PACKAGE_FOLDER.parent
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "rev-parse", "HEAD"]
    try:
        process = subprocess.run(command, capture_output=True, text=True, timeout=GIT_TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return process.stdout.strip() or None


def cpu_name() -> str:
    """Return the processor's name; `platform.processor` is empty or vague on Linux."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"
