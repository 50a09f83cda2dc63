"""Model files taken apart and put together again, for tests."""

import hashlib
import io
import json
import zipfile


def members_of(data):
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def packed(members, compression=zipfile.ZIP_STORED):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return out.getvalue()


def change_head(data, change, **replaced):
    """Change model.json and members, with checksums that fit."""
    members = members_of(data) | replaced
    head = json.loads(members["model.json"])
    for name, content in members.items():
        if name != "model.json":
            digest = hashlib.sha256(content).hexdigest()
            head["members"][name] = {"size": len(content), "sha256": digest}
    change(head)
    members["model.json"] = json.dumps(head).encode()
    return packed(members.items())
