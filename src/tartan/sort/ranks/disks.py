"""What kind of file system a temporary folder lies on."""

from __future__ import annotations

from pathlib import Path

# By convention of Linux: the names of file systems whose data lie on other machines, as mounts show them.
NETWORK_KINDS = frozenset(
    {
        *("9p", "afs", "beegfs", "ceph", "cifs", "fuse.glusterfs", "fuse.sshfs", "gfs2", "glusterfs", "gpfs", "lustre"),
        *("nfs", "nfs4", "ocfs2", "orangefs", "panfs", "pvfs2", "smb3", "smbfs", "wekafs"),
    }
)


def network_of(folder: Path, mounts: Path = Path("/proc/self/mounts")) -> str:
    """Return the name of the network file system that a folder lies on; empty where it lies on a disk of its own.

    Parameters
    ----------
    folder : Path
    mounts : Path
        The mounts of this machine, as the kernel lists them.
    """
    try:
        lines = mounts.read_text().splitlines()
    except OSError:
        return ""
    place, best = folder.resolve(), (-1, "")
    for line in lines:
        words = line.split()
        if len(words) < 3:
            continue
        point = Path(words[1].encode().decode("unicode_escape"))
        if place == point or point in place.parents:
            best = max(best, (len(point.parts), words[2]), key=lambda found: found[0])
    return best[1] if best[1] in NETWORK_KINDS else ""
