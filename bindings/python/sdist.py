"""Makes the source distribution: `python sdist.py DIRECTORY`.

The package is built from crates and scenarios that lie beside it, so that the distribution is a part of the repository:
the crates that it depends on, the scenarios, and `pyproject.toml` at the top with the paths that are right there. Equal
contents give equal bytes.
"""

import gzip
import io
import json
import pathlib
import subprocess
import sys
import tarfile
import tomllib

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PREFIX = HERE.relative_to(ROOT).as_posix()
# The lock file of the workspace is part of what runs are known by: crates/dwell-sim/build.rs reads it.
BESIDE = ["Cargo.lock", "Cargo.toml", "LICENSE-APACHE", "LICENSE-MIT", "scenarios"]
# The package's own files that are needed to build, to read and to test it.
OWN = ["Cargo.lock", "Cargo.toml", "README.md", "pyproject.toml", "python", "src", "tests"]


def crates():
    """Returns the directories of the crates that the package is built from, and its version."""
    words = ["cargo", "metadata", "--locked", "--format-version=1", f"--manifest-path={HERE}/Cargo.toml"]
    packages = json.loads(subprocess.run(words, check=True, capture_output=True).stdout)["packages"]
    local = [it for it in packages if it["source"] is None]
    version = next(it["version"] for it in local if it["name"] == "dwell-python")
    directories = {pathlib.Path(it["manifest_path"]).parent.relative_to(ROOT).as_posix() for it in local}
    return sorted(directories - {PREFIX}), version


def tracked(places):
    """Returns the files of the repository at these places."""
    words = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *places]
    names = subprocess.run(words, check=True, capture_output=True, text=True).stdout.split("\0")
    return sorted(name for name in names if name and (ROOT / name).is_file())


def project():
    """Returns `pyproject.toml` for the top of the distribution."""
    text = (HERE / "pyproject.toml").read_text()
    for old, new in [
        ('readme = "README.md"', f'readme = "{PREFIX}/README.md"'),
        ('python-source = "python"', f'python-source = "{PREFIX}/python"\nmanifest-path = "{PREFIX}/Cargo.toml"'),
        ('testpaths = ["tests"]', f'testpaths = ["{PREFIX}/tests"]'),
    ]:
        if old not in text:
            sys.exit(f"pyproject.toml has no line {old!r}")
        text = text.replace(old, new)
    return text


def information(version):
    """Returns the metadata that a distribution has beside its files (PKG-INFO)."""
    it = tomllib.loads((HERE / "pyproject.toml").read_text())["project"]
    lines = [
        "Metadata-Version: 2.4",
        f"Name: {it['name']}",
        f"Version: {version}",
        f"Summary: {it['description']}",
        f"License-Expression: {it['license']}",
        f"Requires-Python: {it['requires-python']}",
        *(f"Classifier: {name}" for name in it["classifiers"]),
        *(f"Project-URL: {name}, {url}" for name, url in it.get("urls", {}).items()),
        "Description-Content-Type: text/markdown",
        "",
        (HERE / "README.md").read_text(),
    ]
    return "\n".join(lines)


def main(directory):
    """Writes the distribution, and prints its path."""
    beside, version = crates()
    stem = f"dwell-{version}"
    files = {name: (ROOT / name).read_bytes() for name in tracked(BESIDE + beside + [f"{PREFIX}/{it}" for it in OWN])}
    files |= {"pyproject.toml": project().encode(), "PKG-INFO": information(version).encode()}
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, data in sorted(files.items()):
            entry = tarfile.TarInfo(f"{stem}/{name}")
            entry.size, entry.mode = len(data), 0o644
            archive.addfile(entry, io.BytesIO(data))
    path = pathlib.Path(directory) / f"{stem}.tar.gz"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(out.getvalue(), 9, mtime=0))
    print(path)


if __name__ == "__main__":
    main(*sys.argv[1:])
