"""MkDocs' hooks for these pages: links that leave docs/ become addresses of the repository, or their text where no address is known.

`mkdocs.yml` may set repo_url; `REPO_URL=... make site` does so for one build.
"""
import os
import pathlib
import re

LINK = re.compile(r"\[([^\]]*)\]\(((?:\.\./)+[^)#\s]*)(#[^)]*)?\)")


def outside(match, page, docs, repository):
    """|match|, a link relative to |page|, as it should be on the site."""
    at = (page.parent / match.group(2)).resolve()
    if at.is_relative_to(docs):
        return match.group(0)
    if not at.exists():
        raise FileNotFoundError(f"{page}: dead link: {match.group(2)}")
    if not repository:
        return match.group(1)
    return f"[{match.group(1)}]({repository}/blob/main/{at.relative_to(docs.parent)}{match.group(3) or ''})"


def on_page_markdown(markdown, page, config, **_):
    docs = pathlib.Path(config["docs_dir"]).resolve()
    repository = (os.environ.get("REPO_URL") or config["repo_url"] or "").rstrip("/")
    at = docs / page.file.src_path
    return LINK.sub(lambda m: outside(m, at, docs, repository), markdown)
