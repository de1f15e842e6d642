#!/usr/bin/env python3
"""Prints what the program is made of, as CycloneDX 1.5 in JSON: the crates that are linked into it, by Cargo.lock.

    packaging/sbom.py ROOT VERSION             that
    packaging/sbom.py ROOT VERSION --notices   the texts of their licences, which whoever passes the program on passes on, too

Times are SOURCE_DATE_EPOCH, and the serial number is a hash of the rest, so that the same sources have the same bill.
"""

import hashlib
import json
import os
import subprocess
import sys
import time
import tomllib
import uuid

NOTICES = ("LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE")
# Parts of packages that are not linked in.
UNLINKED = {"tests", "test", "programs", "examples", "contrib", "benches", "fuzz", "doc", "docs", ".git"}
TARGETS = ("x86_64-unknown-linux-musl", "aarch64-unknown-linux-musl")


def linked(root, target):
    """The packages that are linked into `dwell` for a target, and what each of them needs, by cargo's ids."""
    command = ["cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", target]
    text = subprocess.run(command, cwd=root, check=True, stdout=subprocess.PIPE).stdout
    metadata = json.loads(text)
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    (first,) = (i for i, package in packages.items() if package["name"] == "dwell")
    needs, waiting = {}, [first]
    while waiting:
        package = waiting.pop()
        if package in needs:
            continue
        is_macro = any("proc-macro" in part["kind"] for part in packages[package]["targets"])
        # Macros and what only they, builds and tests need is not in the program.
        needs[package] = [] if is_macro else [
            dep["pkg"]
            for dep in nodes[package]["deps"]
            if any(kind["kind"] is None for kind in dep["dep_kinds"])
            and not any("proc-macro" in part["kind"] for part in packages[dep["pkg"]]["targets"])
        ]
        waiting += needs[package]
    return first, packages, needs


def component(package, checksums):
    """A crate as CycloneDX describes it."""
    name, version = package["name"], package["version"]
    purl = f"pkg:cargo/{name}@{version}"
    result = {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl, "scope": "required"}
    if package.get("license"):
        result["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
    if (name, version) in checksums:
        result["hashes"] = [{"alg": "SHA-256", "content": checksums[name, version]}]
    if package.get("repository"):
        result["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
    return result


def bill(root, version):
    """The whole document."""
    with open(os.path.join(root, "Cargo.lock"), "rb") as file:
        lock = tomllib.load(file)["package"]
    checksums = {(entry["name"], entry["version"]): entry["checksum"] for entry in lock if "checksum" in entry}
    components, edges = {}, {}
    for target in TARGETS:
        first, packages, needs = linked(root, target)
        for package, others in needs.items():
            described = component(packages[package], checksums)
            components[described["bom-ref"]] = described
            refs = (component(packages[other], checksums)["bom-ref"] for other in others)
            edges.setdefault(described["bom-ref"], set()).update(refs)
        program = component(packages[first], checksums)
    components.pop(program["bom-ref"])
    program.update(type="application", version=version)
    program.pop("scope")
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": program},
        "components": [components[ref] for ref in sorted(components)],
        "dependencies": [{"ref": ref, "dependsOn": sorted(edges[ref])} for ref in sorted(edges)],
    }
    if "SOURCE_DATE_EPOCH" in os.environ:
        when = time.gmtime(int(os.environ["SOURCE_DATE_EPOCH"]))
        document["metadata"]["timestamp"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", when)
    digest = hashlib.sha256(json.dumps(document, sort_keys=True).encode()).digest()
    document["serialNumber"] = f"urn:uuid:{uuid.UUID(bytes=digest[:16], version=5)}"
    return document


def notices_of(package):
    """The files with licences of a package, also of the C libraries beneath it, relative to its directory."""
    top = os.path.dirname(package["manifest_path"])
    for directory, inner, names in os.walk(top):
        inner[:] = sorted(set(inner) - UNLINKED)
        for name in sorted(names):
            if name.upper().startswith(NOTICES) and not name.endswith((".rs", ".c", ".h", ".go", ".pl")):
                yield os.path.relpath(os.path.join(directory, name), top)


def notices(root):
    """The texts of the licences of what is linked in, each once, below the crates that have it."""
    texts = {}
    for target in TARGETS:
        _, packages, needs = linked(root, target)
        for package in (packages[package] for package in needs):
            for path in notices_of(package) if package["source"] else ():
                whole = os.path.join(os.path.dirname(package["manifest_path"]), path)
                with open(whole, encoding="utf-8", errors="replace") as file:
                    text = "\n".join(line.rstrip() for line in file).strip()
                texts.setdefault(text, set()).add(f"{package['name']} {package['version']}: {path}")
    for text, crates in sorted(texts.items(), key=lambda item: sorted(item[1])):
        yield "\n".join(sorted(crates)) + "\n\n" + text + "\n\n" + "=" * 80 + "\n"


if __name__ == "__main__":
    if sys.argv[3:] == ["--notices"]:
        print("\n".join(notices(sys.argv[1])))
    else:
        json.dump(bill(sys.argv[1], sys.argv[2]), sys.stdout, indent=1, sort_keys=True)
        print()
