#!/usr/bin/env python3
"""Whether links of the site's pages lead somewhere in it: check-links.py DIRECTORY. Links to other hosts are not followed.

mdBook renders the pages that SUMMARY.md names, and says nothing of a link to one that it does not name.
"""

import re
import sys
from pathlib import Path

# They repeat other pages' links from another place, or have none.
NO_PAGES = {"print.html", "toc.html", "404.html"}

root = Path(sys.argv[1])
links, broken = 0, []
for page in sorted(root.rglob("*.html")):
    if page.name in NO_PAGES:
        continue
    main = re.search("<main>(.*?)</main>", page.read_text(encoding="utf-8"), re.DOTALL)
    for link in re.findall('(?:href|src)="([^"#]+)(?:#[^"]*)?"', main.group(1) if main else ""):
        if "://" in link or link.startswith("mailto:"):
            continue
        links += 1
        if not (page.parent / link).exists():
            broken.append(f"{page.relative_to(root)} links to {link}")
print("\n".join(broken or [f"{links} links lead somewhere"]))
sys.exit(bool(broken) or links < 100)
